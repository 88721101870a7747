"""Every format: the written translations, and the unchanged rest of the file."""

import codecs
import difflib
import re
from random import Random

import pytest

from t2t_keras.errors import InputError
from t2t_keras.localization.formats import Options, TranslatableFile
from tests.localization.fake_translations import (
    AlignedText,
    double_words,
    reverse_words,
    translate_file,
    unchanged,
    upper,
)
from tests.localization.sample_files import SAMPLES

BILINGUAL = (".po", ".xliff", ".xlf", ".tmx", ".ts", ".csv")

# The lines that change if each text is translated to its capitals: the removed and the added ones.
CHANGES = {
    ".po": """
+#, fuzzy
-msgstr ""
+msgstr "A DOG RUNS."
-#, c-format
+#, fuzzy, c-format
-msgstr ""
+msgstr "COPIED %s TO %d PLACES IN THE <b>BIG FOLDER</b>, WHICH YOU WILL FIND BELOW THE OTHER FOLDER.\\n"
-#, c-format
+#, fuzzy, c-format
-msgstr[0] ""
-msgstr[1] ""
+msgstr[0] "%d DOG"
+msgstr[1] "%d DOGS"
+#, fuzzy
-msgstr ""
+msgstr "SAVE _AS"
""",
    ".xliff": """
+        <target state="needs-review-translation">A <g id="1">BIG DOG</g> RUNS<x id="2"/>.</target>
""",
    ".xlf": """
-<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
+<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
-   <segment>
+   <segment state="translated">
+    <target>HELLO <pc id="1">BIG <ph id="2"/>WORLD</pc>!</target>
""",
    ".tmx": """
+      <tuv xml:lang="de" creationtool="t2t_keras">
+        <seg>A <bpt i="1">&lt;b></bpt>DOG<ept i="1">&lt;/b></ept> &amp; CAT.</seg>
+      </tuv>
""",
    ".ts": """
-        <translation type="unfinished"></translation>
+        <translation type="unfinished">&amp;OPEN FILE</translation>
-        <translation type="unfinished"/>
+        <translation type="unfinished">E&amp;XIT %1 &quot;NOW&quot;</translation>
-            <numerusform></numerusform>
-            <numerusform></numerusform>
+            <numerusform>%n DOG(S)</numerusform>
+            <numerusform>%n DOG(S)</numerusform>
+        <translation type="unfinished">&lt;b&gt;BOLD&lt;/b&gt; DOG</translation>
""",
    ".csv": """
-1,A dog,
-2,"A ""big"" dog, here",
+1,A dog,A DOG
+2,"A ""big"" dog, here","A ""BIG"" DOG, HERE"
""",
    ".srt": """
-<i>Two dogs are running
-through the snow.</i>
+<i>TWO DOGS ARE RUNNING
+THROUGH THE SNOW.</i>
-- Where are you?
-- Here, <b>I am</b>.
+- WHERE ARE YOU?
+- HERE, <b>I AM</b>.
-♪ La la la ♪
+♪ LA LA LA ♪
""",
    ".vtt": """
-<v Bob>A dog <c.red>really</c> runs &amp; barks.
+<v Bob>A DOG <c.red>REALLY</c> RUNS &amp; BARKS.
""",
    ".json": r"""
-  "title": "A \"dog\"\/cat",
-  "items": ["one", {"b": "Hello {{name}}"}],
+  "title": "A \"DOG\"/CAT",
+  "items": ["ONE", {"b": "HELLO {{name}}"}],
""",
    ".yaml": r"""
-  hello: Hello %{name}  # c
-  quoted: "A \"big\" dog"
-  single: 'It''s a dog'
-  list: [one dog, "two dogs"]
+  hello: HELLO %{name}  # c
+  quoted: "A \"BIG\" DOG"
+  single: 'IT''S A DOG'
+  list: [ONE DOG, "TWO DOGS"]
-    A line of text.
+    A LINE OF TEXT.
-    Second paragraph.
+    SECOND PARAGRAPH.
-    A folded text that
-    continues here.
+    A FOLDED TEXT THAT CONTINUES HERE.
-  anchor: &x A dog
+  anchor: &x A DOG
""",
    ".properties": r"""
-title = A dog
-msg=It''s {0} dogs \
-    and cats
-u=Gr\u00fc\u00dfe: "x"
+title = A DOG
+msg=IT''S {0} DOGS AND CATS
+u=GR\u00DC\u00DFE: "X"
""",
    ".strings": r"""
-"a.key" = "Copied %@ to %@ \"now\"\n";
+"a.key" = "COPIED %@ TO %@ \"NOW\"\n";
-"b" = "Dog";
+"b" = "DOG";
""",
    ".md": r"""
-# Dog *breeds* with `code`
+# DOG *BREEDS* WITH `code`
-A **big dog** runs over [the lawn](https://x.org "Title"), see
-[Reference] and ![picture](a.png) with 5 \* 3. It is a very long
-paragraph that continues <kbd>Ctrl</kbd> here.  
-A hard break.
+A **BIG DOG** RUNS OVER [THE LAWN](https://x.org "Title"), SEE [REFERENCE][Reference]
+AND ![picture](a.png) WITH 5 \* 3. IT IS A VERY
+LONG PARAGRAPH THAT CONTINUES <kbd>CTRL</kbd> HERE.  
+A HARD BREAK.
-> - [ ] a task_name here
->   continues here
+> - [ ] A TASK_NAME HERE
+>   CONTINUES HERE
-| Name | Use \| case |
+| NAME | USE \| CASE |
-| dog  | `a\|b` barks |
+| DOG  | `a\|b` BARKS |
""",
}  # fmt: skip


def changed_lines(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0)
    return "\n".join(line for line in lines if not re.match(r"---|\+\+\+|@@", line))


@pytest.mark.parametrize("suffix", SAMPLES)
def test_only_the_translations_change(suffix):
    after = translate_file(SAMPLES[suffix], suffix).decode()
    assert changed_lines(SAMPLES[suffix], after) == CHANGES[suffix].strip("\n")


@pytest.mark.parametrize("suffix", SAMPLES)
def test_line_ends_and_byte_order_marks_are_kept(suffix):
    before, after = SAMPLES[suffix], translate_file(SAMPLES[suffix], suffix).decode()
    for newline in ("\r\n", "\r"):
        content = codecs.BOM_UTF8 + before.replace("\n", newline).encode()
        assert translate_file(content, suffix) == codecs.BOM_UTF8 + after.replace("\n", newline).encode()
    # Some lines of this file end in \r\n, others in \n.
    mixed = before.replace("\n", "\r\n").replace("\r\n", "\n", 4)
    assert mixed.replace("\r", "") == before
    assert translate_file(mixed, suffix).decode().replace("\r", "") == after
    assert translate_file(mixed, suffix).split(b"\n")[:2] == after.encode().split(b"\n")[:2]


@pytest.mark.parametrize("suffix", SAMPLES)
def test_unchanged_texts_keep_all_bytes(suffix):
    after = translate_file(SAMPLES[suffix], suffix, unchanged).decode()
    if suffix not in BILINGUAL:
        assert after == SAMPLES[suffix]
    units = [unit for unit in TranslatableFile(after.encode(), "in", suffix).units if unit.target]
    assert bool(units) == (suffix in BILINGUAL)
    assert all(unit.is_translated for unit in units)
    # Now every unit has a translation.
    assert translate_file(after, suffix, unchanged).decode() == after
    assert translate_file(after, suffix, unchanged, all_units=True).decode().count("\n") == after.count("\n") + (
        2 * (suffix == ".po")  # flags of the two entries translated before
    ) - (suffix == ".po")


@pytest.mark.parametrize("suffix", SAMPLES)
def test_longer_translations_keep_the_structure(suffix):
    before = TranslatableFile(SAMPLES[suffix].encode(), "in", suffix).units
    after = TranslatableFile(translate_file(SAMPLES[suffix], suffix, double_words), "in", suffix).units
    assert len(after) == len(before)


def test_units_have_sources_targets_notes_and_positions():
    file = TranslatableFile(SAMPLES[".po"].encode(), "in.po", ".po")
    first, *_, last = file.units
    assert (first.source, first.target, first.is_translated, first.note) == ("A dog runs.", "", False, "A note.")
    assert (last.source, last.target, last.is_translated) == ("Cat", "Katze", True)
    assert file.lines == [11, 15, 19, 19, 26]


@pytest.mark.parametrize("suffix", BILINGUAL)
def test_all_units_are_translated_on_request(suffix):
    before = SAMPLES[suffix]
    after = translate_file(before, suffix, all_units=True).decode()
    marks = {".xliff": 'approved="no"', ".ts": '<translation type="unfinished">FERTIG', ".po": '#, fuzzy\nmsgid "Cat"'}
    if suffix != ".xlf":
        assert ("Katze" in before or "Fertig" in before) and "Katze" not in after and "Fertig" not in after
    assert marks.get(suffix, "").replace("FERTIG", "DONE") in after


def test_flags_of_an_obsolete_entry_do_not_count_for_the_next_one():
    obsolete = '#, fuzzy\n#~ msgid "old"\n#~ msgstr "alt"\n\n'
    after = translate_file(f'{obsolete}msgid "dog"\nmsgstr ""\n', ".po").decode()
    assert after == f'{obsolete}#, fuzzy\nmsgid "dog"\nmsgstr "DOG"\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("## A *dog* ##\n", "## A *DOG* ##\n"),
        ("A dog  \nand a cat   \n", "A DOG  \nAND A CAT   \n"),
    ],
)
def test_markdown_keeps_blanks_of_headings_and_of_line_breaks(before, after):
    assert translate_file(before, ".md").decode() == after


def test_no_line_of_a_markdown_paragraph_becomes_a_block():
    after = translate_file("It has many\n5 * 30 dogs\n", ".md", lambda _: AlignedText("It has 5 * 30 dogs", ()))
    assert after.decode() == "It has 5\n\\* 30 dogs\n"
    after = translate_file(
        "A dog\nruns <!-- c --> now\n", ".md", lambda text: AlignedText("Dog now", unchanged(text).links[:1])
    )
    assert "\n<!--" not in after.decode()


def test_a_unit_without_a_translation_is_unchanged():
    file = TranslatableFile(SAMPLES[".srt"].encode(), "in.srt", ".srt")
    results = [None if number == 0 else document.filled([unchanged(s.text) for s in document.segments])
               for number, document in enumerate(file.documents)]  # fmt: skip
    assert file.filled(results) == SAMPLES[".srt"].encode()


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_surrogate_pairs_are_one_character(suffix):
    text = translate_file('{"a": "One \\ud83d\\ude00 dög."}', suffix).decode()
    assert text == '{"a": "ONE \U0001f600 DÖG."}'


def test_declared_encodings_are_kept():
    po = SAMPLES[".po"].replace("UTF-8", "ISO-8859-1").replace("A dog runs.", "A café.").encode("latin-1")
    assert 'msgstr "A CAFÉ."'.encode("latin-1") in translate_file(po, ".po")
    ts = SAMPLES[".ts"].replace("utf-8", "iso-8859-1").encode("latin-1")

    def greek(text: str) -> AlignedText:
        return AlignedText("αβγ", ())

    assert b">&#945;&#946;&#947;" in translate_file(ts, ".ts", greek)
    with pytest.raises(InputError, match="in.po: its encoding ISO-8859-1 lacks 'α' of a translation"):
        translate_file(po, ".po", greek)
    strings = codecs.BOM_UTF16_LE + SAMPLES[".strings"].encode("utf-16-le")
    assert '"b" = "DOG";' in translate_file(strings, ".strings").decode("utf-16")
    assert translate_file("a=Grüße".encode("latin-1"), ".properties") == "a=GRÜßE".encode("latin-1")
    assert translate_file("a=Grüße", ".properties").decode() == "a=GRÜßE"


# Invalid files, and a part of the error message after the name of the file.
FAULTS = [
    (".po", 'msgid "a"\nmsgstr "b"\n\nmsgid "c\nmsgstr ""\n', "line 4: not a line of a .po file"),
    (".po", 'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n', "line 4: an entry needs msgid and msgstr"),
    (".po", 'msgid "a"\nmsgstr "b"\nmsgstr "c"\n', "line 3: a second msgstr"),
    (".po", 'msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', "line 1: msgid_plural needs msgstr[0]"),
    (".po", 'msgid "a"\nmsgstr[0] ""\n', "line 1: msgstr[0] needs msgid_plural"),
    (".po", '# x\n"a"\n', "line 2: not a quoted string after a keyword"),
    (".po", 'msgid ""\nmsgstr "Content-Type: text/plain; charset=nonsense\\n"\n', "unknown character encoding"),
    (".po", 'msgid "caf\xe9"\nmsgstr ""\n'.encode("latin-1"), "line 1: not valid utf-8"),
    (".xliff", "<xliff>\n<file>\n</xliff>", "line 3: not well-formed XML: mismatched tag"),
    (".xliff", "<?xml version='1.0'?>\n<tmx/>", "line 2: the root element must be <xliff>, not <tmx>"),
    (
        ".tmx",
        SAMPLES[".tmx"].replace('lang="en', 'lang="fr').replace("srclang", 'srclang="xx" x'),
        "languages: de, fr, fr-US",
    ),
    (".ts", "", "line 1: not well-formed XML: no element found"),
    (".srt", "1\n00:00:01,000 --> soon\nA dog.\n", "line 2: not a valid timing"),
    (".srt", "{25}{75}A dog.\n", "line 1: no timing such as 00:00:01,000 --> 00:00:02,500"),
    (".ts", "<TS>" + "<a>" * 200, "line 1: elements are nested"),
    (".yaml", "[" * 1_000, "line 1: not valid YAML: nested too deep"),
    (".vtt", "00:01.000 --> 00:02.000\nA dog.\n", "line 1: a .vtt file must begin with WEBVTT"),
    (".csv", "id,text\n1,A dog\n", "line 1: --column=source is not in the header; its columns are 'id', 'text'"),
    (".csv", "source,source,target\n", "line 1: --column=source occurs twice"),
    (".csv", "source,target\nA dog,\nA cat\n", "line 3: expected 2 cells, as in the header, got 1"),
    (".csv", 'source,target\n"A dog,\n', "line 2: a quote is not closed"),
    (".json", '{"a": 1,\n"b" 2}', "line 2: not valid JSON: Expecting ':' delimiter"),
    (".json", "[" * 100_000, "not valid JSON"),
    (".yaml", "a: b\nc: [d\n", "line 3: not valid YAML"),
    (".yaml", "a: \x01\n", "line 1: not valid YAML"),
    (".strings", '"a" = "b";\n"c" = d;\n', 'line 2: expected "key" = "value"; got'),
]


@pytest.mark.parametrize(("suffix", "content", "problem"), FAULTS)
def test_errors_name_the_file_and_the_line(suffix, content, problem):
    with pytest.raises(InputError) as caught:
        translate_file(content, suffix, options=Options("en", "de"))
    assert str(caught.value).startswith(f"in{suffix}")
    assert problem in str(caught.value)


def test_damaged_files_are_rejected_or_read():
    """Removes, doubles or replaces characters of the samples a few hundred times."""
    random = Random(1)
    num_read = 0
    for _ in range(300):
        suffix = random.choice(list(SAMPLES))
        text = SAMPLES[suffix]
        for _ in range(random.randint(1, 3)):
            place, size = random.randrange(len(text)), random.randint(0, 20)
            new = random.choice(
                ["", "\n", '"', "<", ">", "&", "{", "}", "\\", "%s", "*", "|", "é", "\r\n", text[:size]]
            )
            text = text[:place] + new + text[place + size * (new == "") :]
        try:
            after = translate_file(text, suffix, random.choice([upper, reverse_words]))
            assert suffix in BILINGUAL or translate_file(text, suffix, unchanged) == text.encode()
        except InputError as error:
            assert str(error).startswith(f"in{suffix}, line ")
            continue
        num_read += 1
        TranslatableFile(after, "out", suffix)
    assert num_read > 100


@pytest.mark.parametrize(("suffix", "module"), [(".yaml", "yaml"), (".md", "markdown_it")])
def test_a_missing_library_is_reported_with_its_extra(monkeypatch, suffix, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(InputError, match=r"is missing: pip install '\.\[localization\]'"):
        translate_file("a: b", suffix)
