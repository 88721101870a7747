"""Translated catalogues are as msgfmt wants them."""

import shutil
import subprocess

import pytest

from tests.localization.fake_translations import backwards, translated_file


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
        ("nplurals=2; plural=(n > 1);", [["%d DOG", "%d DOGS"], ["%d DOGS", "%d DOGS"]]),  # "One" would stand for 0
        ("nplurals=1; plural=0;", [["%d DOGS"], ["%d DOGS"]]),
        (RUSSIAN, [["%d DOG", "%d DOGS", "%d DOGS"], ["%d DOGS", "%d DOGS", "%d DOGS"]]),
        ("nplurals=INTEGER; plural=EXPRESSION;", [["%d DOG", "%d DOGS"], ["ONE DOG", "%d DOGS"]]),
        ("nplurals=2; plural=n / 0;", [["%d DOG", "%d DOGS"], ["ONE DOG", "%d DOGS"]]),
    ],
)
def test_every_plural_form_is_filled(tmp_path, rule, forms):
    present = 1 if "nplurals=1" in rule else 2  # a third form is missing
    after = translated_file(plural_catalogue(rule, present), ".po").decode()
    entries = [[line.partition('"')[2][:-1] for line in each.split("\n") if line.startswith("msgstr[")]
               for each in after.split("\n\n")[1:]]  # fmt: skip
    assert entries == forms
    assert after.count("#, fuzzy, c-format") == 2
    if "EXPRESSION" not in rule and "/" not in rule:
        check(tmp_path, after)


def check(tmp_path, catalogue: str) -> None:
    """Has msgfmt check a catalogue, fuzzy entries as well."""
    if not shutil.which("msgfmt"):
        pytest.skip("needs msgfmt, which is part of gettext")
    (tmp_path / "a.po").write_text(catalogue)
    command = ["msgfmt", "--check-format", "--check-header", "--use-fuzzy", "-o", tmp_path / "a.mo", tmp_path / "a.po"]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "header field" not in line]
    assert done.returncode == 0 and not errors, done.stderr


def test_msgfmt_accepts_arguments_in_a_new_order(tmp_path):
    entry = 'msgid "Copied %s to %d places\\n"\nmsgstr ""\n'
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    for flag, new in (("c", "%2$d places %1$s to Copied\\n"), ("python", "%s places %d to Copied\\n")):
        after = translated_file(f"{header}#, {flag}-format\n{entry}", ".po", backwards).decode()
        assert f'msgstr "{new}"' in after
        check(tmp_path, after)
