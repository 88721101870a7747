import zipfile

import polib
import pytest

from t2t_keras.data.sources.gettext_catalogues import read_catalogue, read_wheel
from t2t_keras.errors import InputError
from t2t_keras.text.language_codes import Languages


def entry(source, target, **fields):
    return polib.POEntry(msgid=source, msgstr=target, **fields)


def catalogue(*entries, plural_forms="nplurals=2; plural=(n != 1);"):
    po = polib.POFile()
    po.metadata = {"Content-Type": "text/plain; charset=utf-8", "Plural-Forms": plural_forms}
    po.extend(entries)
    return po


@pytest.fixture
def read_pairs(tmp_path):
    def read(*entries, kind="po", **fields):
        path = tmp_path / f"messages.{kind}"
        po = catalogue(*entries, **fields)
        po.save(str(path)) if kind == "po" else po.save_as_mofile(str(path))
        with open(path, "rb") as file:
            return list(read_catalogue(file, str(path), Languages("en", "de")))

    return read


@pytest.mark.parametrize("kind", ["po", "mo"])
def test_messages_in_order(read_pairs, kind):
    entries = [entry("Add a user", "Füge einen Benutzer hinzu"), entry("Cancel", "Abbrechen", msgctxt="a button")]
    assert sorted(read_pairs(*entries, kind=kind)) == [(item.msgid, item.msgstr) for item in entries]


def test_fuzzy_obsolete_and_missing_translations_are_left_out(read_pairs):
    assert (
        read_pairs(
            entry("A guess", "Geraten", flags=["fuzzy"]), entry("Old news", "Altes", obsolete=True), entry("Later", "")
        )
        == []
    )


@pytest.mark.parametrize("kind", ["po", "mo"])
def test_plural_forms_of_german(read_pairs, kind):
    message = entry("%d file", "", msgid_plural="%d files", msgstr_plural={0: "%d Datei", 1: "%d Dateien"})
    assert read_pairs(message, kind=kind) == [("%d file", "%d Datei"), ("%d files", "%d Dateien")]


def test_plural_forms_of_other_languages(read_pairs):
    polish = entry("%d file", "", msgid_plural="%d files", msgstr_plural={0: "%d plik", 1: "%d pliki", 2: "%d plików"})
    rule = "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
    assert read_pairs(polish, plural_forms=rule) == [("%d file", "%d plik"), ("%d files", "%d pliki")]
    turkish = entry("%d file", "", msgid_plural="%d files", msgstr_plural={0: "%d dosya"})
    assert read_pairs(turkish, plural_forms="nplurals=1; plural=0;") == [
        ("%d file", "%d dosya"),
        ("%d files", "%d dosya"),
    ]
    for invalid in ("nplurals=3; plural=nonsense(;", f"nplurals={'9' * 5000}; plural=0;"):
        assert read_pairs(polish, plural_forms=invalid)[0] == ("%d file", "%d plik")


def test_symbolic_names_are_replaced_by_their_text_or_left_out(read_pairs):
    assert read_pairs(
        entry("label_edit", "Bearbeiten", comment='Default: "Edit"'),
        entry("label_save", "Speichern"),
        entry("msgNotSaved", "Nicht gespeichert"),
        entry("heading.content-rules", "Regeln"),
        entry("description", "Beschreibung"),
    ) == [("Edit", "Bearbeiten"), ("description", "Beschreibung")]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Hello %(name)s!", "Hallo %(name)s!"),
        ("{0} of {1}", "{0} von {1}"),
        ("${count} items in %s", "${count} Einträge in %s"),
        ("about 50% of all", "etwa 50 % von allen"),
    ],
)
def test_placeholders_are_kept(read_pairs, source, target):
    assert read_pairs(entry(source, target)) == [(source, target)]


@pytest.mark.parametrize(
    ("source", "target"),
    [("Hello %(name)s!", "Hallo %(nmae)s!"), ("{0} of {1}", "{0} von allen"), ("See <b>this</b>.", "Siehe dies.")],
)
def test_pairs_that_differ_in_placeholders_or_markup_are_left_out(read_pairs, source, target):
    assert read_pairs(entry(source, target)) == []


def test_markup_is_removed_but_not_similar_text(read_pairs):
    assert read_pairs(
        entry('Click <a href="%(url)s">here</a> &amp; wait<br/>', 'Klicke <a href="%(url)s">hier</a> &amp; warte<br/>'),
        entry("clone <source> here", "klone <source> hierher"),
    ) == [("Click here & wait", "Klicke hier & warte"), ("clone <source> here", "klone <source> hierher")]


@pytest.mark.parametrize(
    ("entries", "plain"),
    [
        (("_File", "_Datei"), ("File", "Datei")),
        (("E_xit now", "_Beenden"), ("Exit now", "Beenden")),
        (("&Save as", "Speichern &unter"), ("Save as", "Speichern unter")),
        (("_Open List", "Liste öffnen"), ("Open List", "Liste öffnen")),
        (("Open (_O)", "Öffnen (_O)"), ("Open", "Öffnen")),
        (("Set max_length here", "Setze max_length hier"), ("Set max_length here", "Setze max_length hier")),
        (("AT&T phone", "AT&T-Telefon oder AT&T"), ("AT&T phone", "AT&T-Telefon oder AT&T")),
        (("On %(full_date)s.", "Am %(full_date)s"), ("On %(full_date)s.", "Am %(full_date)s")),
        (("Salt & pepper", "Salz & Pfeffer"), ("Salt & pepper", "Salz & Pfeffer")),
    ],
)
def test_accelerators_are_removed_but_not_identifiers(read_pairs, entries, plain):
    assert read_pairs(entry(*entries)) == [plain]


def test_each_paragraph_is_a_pair_with_joined_lines(read_pairs):
    source, target = "First part,\n  two lines.\n\nSecond part.\n", "Erster Teil,\nzwei Zeilen.\n \nZweiter Teil."
    assert read_pairs(entry(source, target), entry("One.\n\nTwo.", "Eins und zwei.")) == [
        ("First part, two lines.", "Erster Teil, zwei Zeilen."),
        ("Second part.", "Zweiter Teil."),
    ]


def test_messages_without_words_are_left_out(read_pairs):
    assert read_pairs(entry("%d:%02d", "%d:%02d"), entry("...", "…"), entry("x", "y")) == []


def make_wheel(path, files):
    with zipfile.ZipFile(path, "w") as wheel:
        for name, po in files.items():
            data = po.to_binary() if name.endswith(".mo") else str(po).encode()
            wheel.writestr(name, data)
    return path


def test_a_wheel_gives_all_catalogues_of_a_language_once_in_order(tmp_path):
    wheel = make_wheel(
        tmp_path / "some-1-py3-none-any.whl",
        {
            "some/b/locale/de/LC_MESSAGES/django.po": catalogue(
                entry("Two words", "Zwei Wörter"), entry("Again", "Noch")
            ),
            "some/a/locale/de/LC_MESSAGES/django.po": catalogue(entry("Again", "Noch"), entry("title_x", "Titel")),
            "some/a/locale/de/LC_MESSAGES/django.mo": catalogue(entry("Not read", "beside its .po")),
            "some/modules/locale/de.po": catalogue(entry("Third place", "Dritter Ort")),
            "some/a/locale/fr/LC_MESSAGES/django.po": catalogue(entry("Again", "Encore")),
            "some/a/locale/de_AT/LC_MESSAGES/django.po": catalogue(entry("Austrian", "Österreichisch")),
        },
    )
    assert read_wheel(wheel, "de") == [("Again", "Noch"), ("Two words", "Zwei Wörter"), ("Third place", "Dritter Ort")]
    assert read_wheel(wheel, "fr") == [("Again", "Encore")]
    assert read_wheel(wheel, "ja") == []


def test_a_regional_catalogue_is_used_if_there_is_no_general_one(tmp_path):
    wheel = make_wheel(
        tmp_path / "some-1-py3-none-any.whl",
        {
            f"{locale}/LC_MESSAGES/a.po": catalogue(entry("Hello", locale))
            for locale in ("de_AT", "de_DE", "pt_BR", "pt")
        },
    )
    assert read_wheel(wheel, "de") == [("Hello", "de_DE")]
    assert read_wheel(wheel, "pt") == [("Hello", "pt")]
    assert read_wheel(wheel, "pt-BR") == [("Hello", "pt_BR")]


def test_a_broken_wheel_or_catalogue_is_an_error(tmp_path):
    path = tmp_path / "some-1-py3-none-any.whl"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="some-1-py3-none-any.whl: broken compressed file"):
        read_wheel(path, "de")
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("de/LC_MESSAGES/a.mo", b"no catalogue")
    with pytest.raises(InputError, match="some-1-py3-none-any.whl/de/LC_MESSAGES/a.mo: not a readable catalogue"):
        read_wheel(path, "de")
