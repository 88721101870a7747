"""Readers of parallel text: each format from a small file, and rejected files."""

import bz2
import gzip
import io
import json
import lzma
import struct
import tracemalloc
import zipfile

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data import readers
from t2t_keras.data.prepare import prepare
from t2t_keras.data.readers import Format, known_format, pair_source, read_lines, read_pairs
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.text.language_codes import Languages

ENGLISH_GERMAN = Languages("en", "de")
PAIRS = [("A dog runs.", "Ein Hund rennt."), ("Two cats sleep.", "Zwei Katzen schlafen.")]

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US"/><body>
<tu><tuv xml:lang="en-US"><seg>A dog <bpt i="1">&lt;b&gt;</bpt>runs<ept i="1">&lt;/b&gt;</ept>.</seg></tuv>
 <tuv xml:lang="fr-FR"><seg>Un chien court.</seg></tuv>
 <tuv xml:lang="de-DE"><seg>Ein Hund <hi>rennt</hi>.</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Seulement français.</seg></tuv></tu>
<tu><prop type="x">1</prop><tuv xml:lang="de-DE"><seg>Zwei Katzen<ph>&lt;br/&gt;</ph>schlafen.</seg></tuv>
 <tuv xml:lang="en-US"><seg>Two cats<ph>&lt;br/&gt;</ph>sleep.</seg></tuv></tu>
</body></tmx>"""
XLIFF = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="de" original="a"><body>
<trans-unit id="1"><source>A dog <g id="1">runs</g>.</source>
 <target state="translated">Ein Hund <g id="1">rennt</g>.</target>
 <alt-trans><source>A dog walks.</source><target>Ein Hund geht.</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Untranslated.</source></trans-unit>
<trans-unit id="3"><source>New.</source><target state="new">New.</target></trans-unit>
<group><trans-unit id="4"><source>Two<x id="1"/>cats sleep.</source>
 <target>Zwei<x id="1"/>Katzen schlafen.</target></trans-unit></group>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1">
<segment state="final"><source>A dog <pc id="1">runs</pc>.</source>
 <target>Ein Hund <pc id="1">rennt</pc>.</target></segment>
<segment state="initial"><source>Old.</source><target>Alt.</target></segment>
<segment><source>Two cats<ph id="2"/> sleep.</source>
 <target>Zwei Katzen<ph id="2"/> schlafen.</target></segment>
</unit></file></xliff>"""
PO = """# A comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"

msgid "A dog runs."
msgstr "Ein Hund rennt."

#, fuzzy
msgid "A cat runs."
msgstr "Ein Hund rennt."

msgid "Nothing yet."
msgstr ""

msgid "Two cats "
"sleep."
msgstr "Zwei Katzen schlafen."
"""
QT = """<!DOCTYPE TS><TS version="2.1" sourcelanguage="en_US" language="de_DE"><context><name>W</name>
<message><source>A dog runs.</source><translation>Ein Hund rennt.</translation></message>
<message><source>Open.</source><translation type="unfinished">Auf.</translation></message>
<message numerus="yes"><source>Two cats sleep.</source><translation><numerusform>Eine Katze schläft.</numerusform>
<numerusform>Zwei Katzen schlafen.</numerusform></translation></message></context></TS>"""
WMT_XML = """<?xml version='1.0' encoding='utf-8'?><dataset id="newstest"><doc origlang="en" id="d1">
<src lang="en"><p><seg id="1">A dog runs.</seg><seg id="2">Two cats sleep.</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">Ein Hund rennt.</seg><seg id="2">Zwei Katzen schlafen.</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">Hund.</seg><seg id="2">Katzen.</seg></p></ref>
<hyp system="x"><p><seg id="1">x</seg></p></hyp></doc></dataset>"""
SGM = '<{set} setid="t" srclang="any">\n<doc docid="d"><p>\n{lines}</p></doc></{set}>\n'


def tsv(*pairs, end="\n"):
    return "".join(f"{source}\t{target}{end}" for source, target in pairs)


def jsonl(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def moses(pairs=PAIRS, names=("T.de-en.en", "T.de-en.de"), extra=("README", "LICENSE")):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in extra:
            archive.writestr(name, "text about it\n")
        for name, lines in zip(names, zip(*pairs, strict=True), strict=True):
            archive.writestr(name, "".join(f"{line}\n" for line in lines))
    return file.getvalue()


def zipped(name, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def parquet(columns):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(arrow.table(columns), file)
    return file.getvalue()


def parquet_in_latin_1():
    """Returns a table with a text that is not valid UTF-8."""
    arrow = pytest.importorskip("pyarrow")
    offsets, content = (arrow.py_buffer(part) for part in (struct.pack("2i", 0, 1), "ä".encode("latin-1")))
    return parquet({"source": arrow.StringArray.from_buffers(1, offsets, content), "target": ["b"]})


def zstandard(contents):
    return pytest.importorskip("zstandard").compress(contents)


CASES = {
    "tab-separated": ("a.tsv", lambda: tsv(*PAIRS)),
    "tab-separated, the lines of an old Mac": ("a.tsv", lambda: tsv(*PAIRS, end="\r")),
    "an old Mac's lines before a line feed": ("a.tsv", lambda: tsv(*PAIRS, end="\r")[:-1] + "\n"),
    "tab-separated, Windows": ("a.tab", lambda: "\ufeff" + tsv(*PAIRS, end="\r\n")),
    "with a header": ("a.tsv", lambda: tsv(("id\ten-GB", "de"), *((f"1\t{s}", t) for s, t in PAIRS))),
    "commas": ("a.csv", lambda: "".join(f"{s},{t}\n" for s, t in PAIRS)),
    "semicolons": ("a.csv", lambda: "".join(f"{s};{t}\r\n" for s, t in PAIRS)),
    "declared": ("a.csv", lambda: "sep=;\n" + "".join(f'"{s}";"{t}"\n' for s, t in PAIRS)),
    "a header in another order": ("a.CSV", lambda: "de,n,en\n" + "".join(f'"{t}",1,"{s}"\n' for s, t in PAIRS)),
    "a carriage return": ("a.csv", lambda: "".join(f"{s},{t}\n".replace(" ", "\r", 1) for s, t in PAIRS)),
    "line breaks": ("a.csv", lambda: "".join(f'"{s}","{t}"\r\n'.replace(" ", "\r\n", 1) for s, t in PAIRS)),
    "line breaks in cells": ("a.tsv", lambda: tsv(*((f'"{s}"'.replace(" ", "\n", 1), t) for s, t in PAIRS))),
    "translation memory": ("a.tmx", lambda: TMX),
    "in UTF-16": ("a.tmx", lambda: TMX.replace('encoding="UTF-8"', "").encode("utf-16")),
    "without a suffix": ("memory", lambda: TMX),
    "XLIFF": ("a.xlf", lambda: XLIFF),
    "XLIFF 2": ("a.xliff", lambda: XLIFF_2),
    "of Trados": ("a.docx.sdlxliff", lambda: XLIFF),
    "catalogue": ("a.po", lambda: PO),
    "catalogue without a suffix": ("catalogue.txt", lambda: PO),
    "of Qt": ("a.ts", lambda: QT),
    "WMT": ("newstest.xml", lambda: WMT_XML),
    "JSON lines": ("a.jsonl", lambda: jsonl(*({"id": 1, "source": s, "target": t} for s, t in PAIRS))),
    "by language": ("a.ndjson", lambda: jsonl(*({"de": t, "en": s, "fr": "x"} for s, t in PAIRS))),
    "nested": ("a.jsonl", lambda: jsonl(*({"id": "1", "translation": {"en": s, "de": t}} for s, t in PAIRS))),
    "Parquet": ("a.parquet", lambda: parquet({"en": [s for s, _ in PAIRS], "de": [t for _, t in PAIRS]})),
    "Parquet, nested": ("a", lambda: parquet({"translation": [{"en": s, "de": t} for s, t in PAIRS]})),
    "Moses": ("de-en.txt.zip", moses),
    "Moses without a suffix": ("download", moses),
    "a memory in an archive": ("a.zip", lambda: zipped("folder/a.tmx", TMX)),
    "gzip": ("a.tsv.gz", lambda: gzip.compress(tsv(*PAIRS).encode())),
    "gzip by its bytes": ("a.tsv", lambda: gzip.compress(tsv(*PAIRS).encode())),
    "bzip2": ("a.tmx.bz2", lambda: bz2.compress(TMX.encode())),
    "xz": ("a.po.xz", lambda: lzma.compress(PO.encode())),
    "zstandard": ("a.csv.zst", lambda: zstandard("".join(f"{s},{t}\n" for s, t in PAIRS).encode())),
    "compressed Parquet": (
        "a.parquet.gz",
        lambda: gzip.compress(
            parquet(
                {"source": ["A dog runs.", "Two cats sleep."], "target": ["Ein Hund rennt.", "Zwei Katzen schlafen."]}
            )
        ),
    ),
    "compressed Moses": ("a.zip.xz", lambda: lzma.compress(moses())),
}


def write_file(folder, name, contents):
    path = folder / name
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    return path


@pytest.mark.parametrize("case", CASES)
def test_each_format_gives_the_same_pairs(tmp_path, case):
    name, make = CASES[case]
    path = write_file(tmp_path, name, make())
    read = pair_source(path, None, ENGLISH_GERMAN)
    expected = PAIRS
    for _ in range(2):
        assert list(read()) == expected
    assert readers.has_both_sides(path)


REVERSED = ("translation memory", "XLIFF", "XLIFF 2", "catalogue", "of Qt", "WMT", "by language", "Parquet", "Moses")


@pytest.mark.parametrize("case", REVERSED)
def test_formats_with_languages_are_read_in_both_directions(tmp_path, case):
    name, make = CASES[case]
    path = write_file(tmp_path, name, make())
    assert list(read_pairs(path, None, Languages("de", "eng_Latn"))) == [pair[::-1] for pair in PAIRS]
    with pytest.raises(InputError, match=rf"^{path}.*\b(cs|'cs')\b|en.*de"):
        list(read_pairs(path, None, Languages("en", "cs")))


def test_an_archive_in_a_rare_language(tmp_path):
    path = write_file(tmp_path, "ber-en.txt.zip", moses(names=("T.ber-en.ber", "T.ber-en.en")))
    assert list(read_pairs(path, None, Languages("en", "ber"))) == [pair[::-1] for pair in PAIRS]


def test_a_missing_language_is_reported_with_the_available_ones(tmp_path):
    path = write_file(tmp_path, "a.tmx", TMX)
    with pytest.raises(InputError, match="a.tmx: no translations between en and cs; the file has .*en-US"):
        list(read_pairs(path, None, Languages("en", "cs")))
    with pytest.raises(InputError, match=r"a\.po: its translations are in 'de', which is neither --source_language=en"):
        list(read_pairs(write_file(tmp_path, "a.po", PO), None, Languages("en", "cs")))


def test_a_memory_with_several_languages_and_variants(tmp_path):
    units = "".join(
        f'<tu><tuv xml:lang="pt-BR"><seg>BR {n}</seg></tuv><tuv xml:lang="pt-PT"><seg>PT {n}</seg></tuv>'
        f'<tuv xml:lang="en"><seg>en {n}</seg></tuv></tu>'
        for n in range(2)
    )
    path = write_file(tmp_path, "a.tmx", f"<tmx><body>{units}</body></tmx>")
    for code, word in (("pt-PT", "PT"), ("pt_BR", "BR"), ("pt", "BR"), ("por", "BR")):
        expected = [(f"en {n}", f"{word} {n}") for n in range(2)]
        assert list(read_pairs(path, None, Languages("en", code))) == expected
    with pytest.raises(InputError, match="between en and pt-AO"):
        list(read_pairs(path, None, Languages("en", "pt-AO")))


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        ('<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">', "declares the entity 'a'"),
        ('<!ENTITY file SYSTEM "file:///etc/passwd">', "declares the entity 'file'"),
        ('<!ENTITY % part SYSTEM "http://127.0.0.1:9/x"> %part;', "declares the entity 'part'"),
    ],
)
def test_documents_that_declare_entities_are_rejected(tmp_path, declarations, message):
    path = write_file(tmp_path, "a.tmx", TMX.replace(' SYSTEM "tmx14.dtd"', f" [{declarations}]"))
    with pytest.raises(InputError, match=rf"a\.tmx, line \d+: {message}"):
        list(read_pairs(path, None, ENGLISH_GERMAN))


def test_malformed_or_deeply_nested_documents_are_rejected(tmp_path):
    with pytest.raises(InputError, match=r"a\.tmx, line 9: not well-formed XML: "):
        list(read_pairs(write_file(tmp_path, "a.tmx", TMX[:600]), None, ENGLISH_GERMAN))
    deep = TMX.replace("Un chien", "<hi>" * 5000)
    with pytest.raises(InputError, match=r"a\.tmx, line 5: more than 100 nested elements"):
        list(read_pairs(write_file(tmp_path, "a.tmx", deep), None, ENGLISH_GERMAN))


def test_a_memory_is_read_as_a_stream(tmp_path):
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>x</seg></tuv></tu>'.format("a" * 1000)
    path = tmp_path / "a.tmx.gz"
    with gzip.open(path, "wt") as file:
        file.write("<tmx><body>")
        file.writelines(unit for _ in range(5000))
        file.write("</body></tmx>")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_pairs(path, None, ENGLISH_GERMAN)) == 5000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000, "the document is 5 MB"
    finally:
        tracemalloc.stop()


def test_sgml_test_sets_of_wmt_are_two_files(tmp_path):
    sides = (["A dog &amp; a cat at AT&T.", "Two\n cats."], ["Ein Hund.", "Zwei Katzen."])
    paths = []
    for kind, language, lines in zip(("srcset", "refset"), ("en", "de"), sides, strict=True):
        segments = "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in enumerate(lines, 1))
        paths.append(write_file(tmp_path, f"newstest-{kind}.{language}.sgm", SGM.format(set=kind, lines=segments)))
    expected = [("A dog & a cat at AT&T.", "Ein Hund."), ("Two cats.", "Zwei Katzen.")]
    assert list(read_pairs(*paths, ENGLISH_GERMAN)) == expected
    assert list(read_lines(paths[1])) == ["Ein Hund.", "Zwei Katzen."]
    plain = write_file(tmp_path, "output.de", "Hund.\nKatzen.\n")
    assert list(read_pairs(paths[0], plain, ENGLISH_GERMAN))[1] == ("Two cats.", "Katzen.")
    with pytest.raises(
        InputError, match=r"en\.sgm: the file has one side \(a test set in SGML\); give the file of the other"
    ):
        pair_source(paths[0], None, ENGLISH_GERMAN, default=".tsv")
    short = write_file(tmp_path, "short.de.sgm", SGM.format(set="refset", lines="<seg id=1>Ein Hund.</seg>"))
    with pytest.raises(InputError, match=r"unequal numbers of lines: .*en\.sgm has 2, .*short.de.sgm has 1"):
        list(read_pairs(paths[0], short, ENGLISH_GERMAN))
    with pytest.raises(InputError, match="empty.sgm: expected segments"):
        list(read_lines(write_file(tmp_path, "empty.sgm", "no segments")))


REJECTED = {
    "talk.srt": (b"1\n00:00:01,000 --> 00:00:02,000\nHello\n", "subtitles cannot be read; give text whose lines"),
    "subtitles": (b"0 \r\n00:00:01.000 --> 00:00:02,000\nHello\n", "subtitles cannot be read"),
    "film.en": (b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello\n", "subtitles cannot be read"),
    "letter.docx": (zipped("word/document.xml", "<w/>"), "a document cannot be read; save its text as .txt"),
    "letter.en": (zipped("[Content_Types].xml", "<w/>"), "a document cannot be read"),
    "book.en": (zipped("mimetype", "application/epub+zip"), "a document cannot be read"),
    "paper.en": (b"%PDF-1.7\n%\xe2\xe3\n", "a document cannot be read"),
    "rich.en": (b"{\\rtf1\\ansi Hello}", "a document cannot be read"),
    "page.html": (b"<html><body>Hello</body></html>", "a web page cannot be read"),
    "page.en": (b"<!DOCTYPE html>\n<html><body>Hello</body></html>", "a web page cannot be read"),
    "feed.xml": (
        b"<?xml version='1.0'?><rss></rss>",
        "XML of an unknown kind cannot be read; supported XML formats: TMX",
    ),
    "feed.en": (b"<?xml version='1.0'?><rss></rss>", "XML of an unknown kind"),
    "all.json": (b"[{}]", "JSON cannot be read; write one object per line to a .jsonl file"),
    "strings.yaml": (b"a: b\n", "a file of messages in one language cannot be read"),
    "text.tar.gz": (gzip.compress(b"x", mtime=0), "an archive cannot be read; unpack it"),
    "text.7z": (b"7z\xbc\xaf\x27\x1c", "an archive cannot be read"),
    "wide.en": ("Hello\nworld\n".encode("utf-16"), "text in UTF-16, not text in UTF-8; convert it: iconv -f UTF-16"),
    "big.en": ("Hello\nworld\n".encode("utf-16-be"), "text in UTF-16"),
    "little.en": ("Hello\nworld\n".encode("utf-16-le"), "text in UTF-16"),
    "wider.en": ("Hello\n".encode("utf-32"), "text in UTF-32"),
    "old.en": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Microsoft Office"),
    "data.en": (b"abc\x00\x01\x02", "a binary file, not text in UTF-8"),
    "packed.en": (b"\x04\x22\x4d\x18rest", "compressed in a way that is not supported"),
    "memory.en": (TMX.encode(), r"the file has both sides \(a translation memory \(TMX\)\); give it as the source"),
    "pairs.tsv": (b"a\tb\n", r"the file has both sides \(tab-separated values\)"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_files_that_are_not_text_of_one_side_are_rejected(tmp_path, name):
    contents, message = REJECTED[name]
    path = write_file(tmp_path, name, contents)
    other = write_file(tmp_path, "other.de", "Hallo\n")
    for read in (
        lambda: list(read_lines(path)),
        lambda: list(pair_source(path, other, ENGLISH_GERMAN)()),
        lambda: list(pair_source(other, path, ENGLISH_GERMAN)()),
    ):
        with pytest.raises(InputError, match=f"^{path}: {message}"):
            read()


def test_single_text_files_and_archives_without_two_sides_are_rejected(tmp_path):
    with pytest.raises(InputError, match=r"a\.en: plain text has one side; give its translation too, or .* \(\.tsv"):
        pair_source(write_file(tmp_path, "a.en", "A dog.\n"), None, ENGLISH_GERMAN)
    cases = {
        "none": moses(names=("a.fr", "a.cs")),
        "several": moses(extra=("x.en", "README")),
        "two memories": zipped("a.tmx", TMX) and moses(extra=("a.tmx", "b.tmx"), names=("x", "y")),
    }
    for contents in cases.values():
        path = write_file(tmp_path, "a.zip", contents)
        with pytest.raises(
            InputError, match=r"a\.zip: expected one file that ends in \.en and one in \.de, or one file"
        ):
            list(read_pairs(path, None, ENGLISH_GERMAN))
    path = write_file(tmp_path, "office.zip", zipped("[Content_Types].xml", "<x/>"))
    with pytest.raises(InputError, match="office.zip: an office document"):
        list(read_pairs(path, None, ENGLISH_GERMAN))


def damaged_archive():
    """Returns an archive with a wrong checksum in the middle."""
    contents = bytearray(moses(pairs=[(f"word {n} " * 50, f"Wort {n} " * 50) for n in range(200)]))
    contents[len(contents) // 2] ^= 0xFF
    return bytes(contents)


def encrypted_archive():
    """Returns an archive whose file is marked as encrypted, in its header and in the directory."""
    contents = bytearray(zipped("a.tsv", tsv(*PAIRS)))
    contents[6] = contents[contents.find(b"PK\x01\x02") + 8] = 1
    return bytes(contents)


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.zip", damaged_archive(), "broken compressed file"),
        ("b.zip", moses()[:-30], "broken compressed file"),
        ("q.zip", encrypted_archive(), "/a.tsv: cannot be unpacked: .* is encrypted"),
        ("r.zip", zipped("b.zip", moses()), "expected one file .*; it contains b.zip"),
        ("c.parquet", b"PAR1 and no more", "cannot be read as Parquet"),
        ("s.parquet", lambda: parquet_in_latin_1(), "cannot be read as Parquet: 'utf-8' codec"),
        ("d.po", b'msgid "a"\nmessage "b"\n', r"not a readable catalogue: Syntax error in po file \(line 2\)"),
        ("e.mo", b"\xde\x12\x04\x95\0\0\0", "not a readable catalogue"),
        ("f.jsonl", b'{"en": "a", "de": "b"}\n{"en": "a"\n', "line 2: expected a JSON object"),
        ("r.jsonl", b"[" * 100_000, "line 1: expected a JSON object: maximum recursion"),
        ("g.jsonl", b'{"en": "a", "de": 7}\n', "line 1: 'de' must be a text, got int"),
        ("h.jsonl", b'{"text": "a"}\n', "expected fields 'source' and 'target', or 'en' and 'de' .*; got 'text'"),
        ("i.csv", b"a,b\nc,d, e\n", "line 2: 3 cells separated by ',', but 2 in the first row; text with ',' must be"),
        ("p.csv", b"Hello, world,Hallo, Welt\n", "4 columns; expected two, or a header that names 'source' and"),
        ("j.csv", b"a\nb\n", "expected source and target separated by a comma"),
        ("k.csv", b'a,b\nc,"d\n' + b"e,f\n" * 50_000, r"line 2: .* is a quote not closed\?"),
        ("q.csv", b'a,b\nc,"d\ne,f\n', "line 2: a quote is not closed"),
        ("l.tsv.zst", lambda: zstandard(b"")[:4] + b"\xff" * 5, "broken compressed file"),
        ("o.tsv", lambda: zstandard(b"a\tb\n" * 1000)[:-3], "broken compressed file"),
        ("m.tsv.gz", b"a\tb\n", "not a .gz file, or damaged"),
        ("n.tsv", gzip.compress(b"a\tb\n" * 1000, mtime=0)[:-9], "broken compressed file"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, contents, message):
    with pytest.raises(InputError, match=rf"{name}.*{message}"):
        list(
            read_pairs(write_file(tmp_path, name, contents() if callable(contents) else contents), None, ENGLISH_GERMAN)
        )


def test_compression_is_detected_by_the_first_bytes(tmp_path):
    lines = ["A dog runs.", "Zwei Größen"]
    contents = "".join(f"{line}\n" for line in lines).encode()
    for name, compress in (
        ("a.en", gzip.compress),
        ("b.en", bz2.compress),
        ("c.en", lzma.compress),
        ("d.en", zstandard),
    ):
        assert list(read_lines(write_file(tmp_path, name, compress(contents)))) == lines
        assert list(read_lines(write_file(tmp_path, f"{name}.{name}", contents))) == lines


@pytest.mark.parametrize(
    "text", ["PAR1 is a receptor.", f"{'x ' * 128}Mustard", "<!-- a comment --> " * 60 + "text", "<seg"]
)
def test_text_that_starts_like_a_file_format(tmp_path, text):
    assert list(read_lines(write_file(tmp_path, "a.en", text))) == [text]


def test_carriage_returns_end_lines_only_in_files_without_line_feeds(tmp_path):
    source = write_file(tmp_path, "a.en", "one\rtwo\r\rfour")
    target = write_file(tmp_path, "a.de", "eins\r\nzw\rei\n\nvier")
    read = pair_source(source, target, ENGLISH_GERMAN)
    assert list(read()) == [("one", "eins"), ("two", "zw\rei"), ("", ""), ("four", "vier")]
    assert not read.is_splittable, "without line feeds, the file cannot be divided"
    table = write_file(tmp_path, "a.tsv", tsv(*((f"row {n}", f"Zeile {n}") for n in range(100)), end="\r"))
    assert len(list(read_pairs(table, None, ENGLISH_GERMAN))) == 100


def test_a_compiled_catalogue(tmp_path):
    import polib

    path = tmp_path / "de.mo"
    polib.pofile(str(write_file(tmp_path, "a.po", PO))).save_as_mofile(str(path))
    for name in ("de.mo", "catalogue"):
        assert sorted(read_pairs(path.rename(tmp_path / name), None, ENGLISH_GERMAN)) == PAIRS
        path = tmp_path / name


def test_an_unpaired_surrogate_becomes_the_replacement_character(tmp_path):
    path = write_file(tmp_path, "a.jsonl", '{"source": "\\ud83d\\ude00", "target": "a \\ud83d"}')
    assert list(read_pairs(path, None, ENGLISH_GERMAN)) == [("😀", "a \ufffd")]


def test_an_additional_format_needs_one_entry(tmp_path, monkeypatch):
    def read_arrows(file, place, languages):
        for number, line in enumerate(file, start=1):
            source, arrow, target = line.decode().strip().partition(" -> ")
            if not arrow:
                raise InputError(f"{place}, line {number}: expected an arrow")
            yield source, target

    monkeypatch.setitem(readers.FORMATS, ".arrows", Format("pairs with arrows", read_arrows))
    lines = "".join(f"dog number {n} -> Hund Nummer {n}\n" for n in range(200))
    path = write_file(tmp_path, "a.arrows.gz", gzip.compress(lines.encode()))
    corpus = corpora.files({"train": (path, None)})
    data = prepare(corpus, DataConfig(vocab_type="char", vocab_size=300), tmp_path / "data", lambda _: None)
    assert data.counts["train"]["read"] == 200
    assert known_format(path).name == "pairs with arrows"
    with pytest.raises(InputError, match="line 1: expected an arrow"):
        list(read_pairs(write_file(tmp_path, "b.arrows", "no"), None, ENGLISH_GERMAN))


def test_corpora_of_files_select_languages(tmp_path):
    memory = write_file(tmp_path, "a.tmx", TMX)
    config = DataConfig(source_language="fr", target_language="de")
    corpus = corpora.of_config(config, tmp_path, [{"train": (memory, None)}])
    assert list(corpus.splits["train"]()) == [("Un chien court.", "Ein Hund rennt.")]
    assert corpus.files == {"train_source": memory}
    pairs = write_file(tmp_path, "pairs.txt", tsv(*PAIRS))
    assert list(corpora.files({"train": (pairs, None)}).splits["train"]()) == PAIRS
    with pytest.raises(InputError, match="talk.srt: subtitles cannot be read"):
        corpora.files({"train": (write_file(tmp_path, "talk.srt", "1\n"), None)})
    tagged = corpora.combined([corpora.files({"train": (pairs, None)})] * 2, ["<a>", "<b>"])
    assert next(iter(tagged.splits["train"]())) == (f"<a> {PAIRS[0][0]}", PAIRS[0][1])
