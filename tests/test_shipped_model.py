"""The model in the repository: its size, and translations in each direction."""

from pathlib import Path

import pytest

from tests import programs

FOLDER = Path(__file__).parents[1] / "saved_models/en_de_fr"
TRANSLATIONS = {
    ("de", "Where is the station?"): "Wo ist der Bahnhof?",
    ("de", "The file could not be saved."): "Die Datei konnte nicht gespeichert werden.",
    ("fr", "Where is the station?"): "Où est la gare\u202f?",
    ("en", "Können Sie mir bitte helfen?"): "Can you please help me?",
    ("en", "Le mot de passe est trop court."): "The password is too short.",
}


def test_size_of_the_files() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12_000_000


@pytest.mark.integration
def test_translations_in_each_direction() -> None:
    lines = "".join(f"<2{language}> {source}\n" for language, source in TRANSLATIONS)
    result = programs.run(
        ["-m", "launch.translate", f"--model_dir={FOLDER}"], input=lines, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == list(TRANSLATIONS.values())
