"""First words get their usual case, and outputs start with a capital."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.text.truecase import Truecaser, capitalised

TEXTS = [
    "Die Katze sieht die Maus. Die Katze schläft.",
    "Er sagt: „Das ist die Katze.“",
    "Das weiß Sie, und das weiß er.",
    "Wir sehen Sie, sie sehen Sie.",
    "É bom, é mau.",
    "THE END",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Die Maus", "die Maus"),
        ("Die", "die"),
        ("Katze", "Katze"),
        ("Er kommt.", "er kommt."),
        ("Das stimmt.", "Das stimmt."),  # equally often in both cases
        ("Sie kommt.", "Sie kommt."),
        ("Wir kommen.", "Wir kommen."),  # only at the start
        ("Diese", "Diese"),
        ("DIE MAUS", "DIE MAUS"),
        ("„Die Maus“", "„die Maus“"),
        ("- (Die Maus)", "- (die Maus)"),
        ("Die-Maus", "die-Maus"),
        ("--Die", "--Die"),
        ("5 Die", "5 Die"),
        ("", ""),
        ("„“", "„“"),
    ],
)
def test_the_first_word_is_truecased(text, expected):
    truecaser = Truecaser.learned(TEXTS, "de")
    assert truecaser.truecased(text) == expected
    assert capitalised(expected) == text, "the capital is not restored"
    assert not {"wir", "Katze", "tHE"} & truecaser.words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("äpfel und Birnen", "Äpfel und Birnen"),
        ("Äpfel", "Äpfel"),
        ("„ ¿(äpfel", "„ ¿(Äpfel"),
        ("– «été»", "– «Été»"),
        ("- äpfel", "- Äpfel"),
        ("-o äpfel", "-o äpfel"),
        ("3 äpfel", "3 äpfel"),
        ("{name} und", "{name} und"),
        ("%s und", "%s und"),
        ("ßen", "ßen"),
        ("ǆep", "ǅep"),
        ("ქართული", "ქართული"),  # has capitals that do not start sentences
        ("犬", "犬"),
        ("", ""),
        (" ", " "),
    ],
)
def test_the_first_letter_is_capitalised(text, expected):
    assert capitalised(text) == expected


def test_words_are_stored_one_per_line(tmp_path):
    words = Truecaser.learned(TEXTS, "de")
    path = tmp_path / "truecase.txt"
    path.write_bytes(words.serialized)
    assert path.read_text(encoding="utf-8").splitlines() == sorted(words.words)
    assert Truecaser.load(path).words == words.words
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"truecase\.txt: cannot read the words to truecase"):
        Truecaser.load(path)
