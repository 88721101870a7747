"""Other programs read the translated files: translate-toolkit, and msgfmt for catalogues."""

import shutil
import subprocess

import pytest

from tests.localization.fake_translations import double_words, reverse_words, translate_file
from tests.localization.sample_files import SAMPLES

# For each format: the module and class of translate-toolkit, and the units that it reads, as source, target and whether
# to check the target. In a file of a single language, the texts are the sources.
EXPECTED_UNITS = {
    ".po": (
        "pypo.pofile",
        [
            ("A dog runs.", "A DOG RUNS.", True),
            (
                "Copied %s to %d places in the <b>big folder</b>, which you will find below the other folder.\n",
                "COPIED %s TO %d PLACES IN THE <b>BIG FOLDER</b>, WHICH YOU WILL FIND BELOW THE OTHER FOLDER.\n",
                True,
            ),
            ("%d dog", "%d DOG", True),
            ("Save _As", "SAVE _AS", True),
            ("Cat", "Katze", False),
        ],
    ),
    ".xliff": (
        "xliff.xlifffile",
        [("A big dog runs.", "A BIG DOG RUNS.", True), ("Cat", "Katze", False)],
    ),
    ".xlf": ("xliff2.Xliff2File", [("Hello big world!", "HELLO BIG WORLD!", False)]),
    ".tmx": (
        "tmx.tmxfile",
        [("A <b>dog</b> & cat.", "A <b>DOG</b> & CAT.", False), ("Cat", "Katze", False)],
    ),
    ".ts": (
        "ts2.tsfile",
        [
            ("&Open file", "&OPEN FILE", True),
            ('E&xit %1 "now"', 'E&XIT %1 "NOW"', True),
            ("%n dog(s)", "%n DOG(S)", True),
            ("Done", "Fertig", False),
            ("<b>Bold</b> dog", "<b>BOLD</b> DOG", True),
        ],
    ),
    ".csv": (
        "csvl10n.csvfile",
        [("A dog", "A DOG", False), ('A "big" dog, here', 'A "BIG" DOG, HERE', False), ("Cat", "Katze", False)],
    ),
    ".srt": (
        "subtitles.SubRipFile",
        [
            "<i>TWO DOGS ARE RUNNING\nTHROUGH THE SNOW.</i>",
            "- WHERE ARE YOU?\n- HERE, <b>I AM</b>.",
            "♪ LA LA LA ♪",
        ],
    ),
    ".json": ("jsonl10n.JsonFile", ['A "DOG"/CAT', "ONE", "HELLO {{name}}", "3", "x"]),
    ".yaml": (
        "yaml.RubyYAMLFile",
        [
            *("HELLO %{name}", 'A "BIG" DOG', "IT'S A DOG", "ONE DOG", "TWO DOGS"),
            *("A LINE OF TEXT.\n\nSECOND PARAGRAPH.", "A FOLDED TEXT THAT CONTINUES HERE.\n", "3", "A DOG", "A DOG"),
        ],
    ),
    ".properties": ("properties.javafile", ["A DOG", "IT''S {0} DOGS AND CATS", 'GRÜßE: "X"', ""]),
    ".strings": ("properties.stringsutf8file", ['COPIED %@ TO %@ "NOW"\n', "DOG"]),
    ".md": (
        "markdown.MarkdownFile",
        [
            *("---\ntitle: Not translated\n---\n\n", "DOG *BREEDS* WITH `code`", "Title", "Reference"),
            "A **BIG DOG** RUNS OVER [THE LAWN]{1}, SEE [REFERENCE]{2} AND ![picture]{3} WITH 5 \\* 3. IT IS A VERY "
            "LONG PARAGRAPH THAT CONTINUES {4}CTRL{5} HERE.\nA HARD BREAK.",
            *("[ ] A TASK_NAME HERE CONTINUES HERE", "NAME", "USE | CASE", "DOG", "`a|b` BARKS", "code", "Reference"),
        ],
    ),
}


def read_units(suffix: str, content: bytes) -> list:
    """Returns the units that translate-toolkit reads; skips the test if a package for the format is missing."""
    module, name = EXPECTED_UNITS[suffix][0].split(".")
    storage = pytest.importorskip(f"translate.storage.{module}", reason="needs translate-toolkit", exc_type=ImportError)
    store = getattr(storage, name)()
    store.parse(content)
    return [unit for unit in store.units if unit.istranslatable()]


@pytest.mark.parametrize("suffix", EXPECTED_UNITS)
def test_translate_toolkit_reads_the_translations(suffix):
    expected = EXPECTED_UNITS[suffix][1]
    actual = read_units(suffix, translate_file(SAMPLES[suffix], suffix))
    if isinstance(expected[0], str):
        assert [str(unit.source) for unit in actual] == expected
    else:
        assert [(str(unit.source), str(unit.target), unit.isfuzzy()) for unit in actual] == expected


def test_subtitles_keep_their_times():
    before, after = (
        [(unit.getlocations()) for unit in read_units(".srt", content)]
        for content in (SAMPLES[".srt"].encode(), translate_file(SAMPLES[".srt"], ".srt", double_words))
    )
    assert after == before and len(after) == 3


def plural_catalogue(rule: str, forms: int = 2) -> str:
    entry = '#, c-format\nmsgid "{} dog"\nmsgid_plural "%d dogs"\n' + "".join(
        f'msgstr[{form}] ""\n' for form in range(forms)
    )
    header = f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: {rule}\\n"\n'
    return f"{header}\n{entry.format('%d')}\n{entry.format('One')}"


RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"


@pytest.mark.parametrize(
    ("rule", "forms"),
    [
        ("nplurals=2; plural=(n != 1);", [["%d DOG", "%d DOGS"], ["ONE DOG", "%d DOGS"]]),
        ("nplurals=2; plural=(n > 1);", [["%d DOG", "%d DOGS"], ["%d DOGS", "%d DOGS"]]),  # "One" would stand for 0.
        ("nplurals=1; plural=0;", [["%d DOGS"], ["%d DOGS"]]),
        (RUSSIAN, [["%d DOG", "%d DOGS", "%d DOGS"], ["%d DOGS", "%d DOGS", "%d DOGS"]]),
        ("nplurals=INTEGER; plural=EXPRESSION;", [["%d DOG", "%d DOGS"], ["ONE DOG", "%d DOGS"]]),
        ("nplurals=2; plural=n / 0;", [["%d DOG", "%d DOGS"], ["ONE DOG", "%d DOGS"]]),
    ],
)
def test_every_plural_form_is_filled(tmp_path, rule, forms):
    present = 1 if "nplurals=1" in rule else 2  # The third form is missing.
    after = translate_file(plural_catalogue(rule, present), ".po").decode()
    entries = [[line.partition('"')[2][:-1] for line in entry.split("\n") if line.startswith("msgstr[")]
               for entry in after.split("\n\n")[1:]]  # fmt: skip
    assert entries == forms
    assert after.count("#, fuzzy, c-format") == 2
    if "EXPRESSION" not in rule and "/" not in rule:
        run_msgfmt(tmp_path, after)


def run_msgfmt(tmp_path, catalogue: str) -> None:
    """Runs msgfmt on a catalogue and returns its errors; it checks fuzzy entries as well."""
    if not shutil.which("msgfmt"):
        pytest.skip("needs msgfmt, which is part of gettext")
    (tmp_path / "a.po").write_text(catalogue)
    command = ["msgfmt", "--check-format", "--check-header", "--use-fuzzy", "-o", tmp_path / "a.mo", tmp_path / "a.po"]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "header field" not in line]
    assert done.returncode == 0 and not errors, done.stderr


def test_msgfmt_accepts_reordered_arguments(tmp_path):
    entry = 'msgid "Copied %s to %d places\\n"\nmsgstr ""\n'
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    for flag, new in (("c", "%2$d places %1$s to Copied\\n"), ("python", "%s places %d to Copied\\n")):
        after = translate_file(f"{header}#, {flag}-format\n{entry}", ".po", reverse_words).decode()
        assert f'msgstr "{new}"' in after
        run_msgfmt(tmp_path, after)
