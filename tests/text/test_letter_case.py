"""Text in capitals and title case."""

import pytest

from t2t_keras.text.letter_case import case_of, in_case, is_unfamiliar, ordinary


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("A MAN EATS.", "capitals"),
        ("5 DOGS, 3 CATS", "capitals"),
        ("STOP!", "capitals"),
        ("ÜBER DIE STRASSE", "capitals"),
        ("A Man Rides a Bike", "title"),
        ("The Lord of the Rings", "title"),
        ("A man from NASA eats.", None),
        ("NASA launches a rocket.", None),
        ("I", None),
        ("Stop!", None),
        ("Angela Merkel", None),
        ("Angela Merkel besucht Berlin", None),
        ("A man. He", None),
        ("A dog Eats", None),
        ("The NASA and CERN", None),
        ("12 345", None),
        ("我爱北京", None),
        ("", None),
    ],
)
def test_the_case_of_a_text(text, case):
    assert case_of(text, "en") == case


def test_german_nouns_make_no_title():
    assert case_of("Der Hund und die Katze", "de") is None
    assert case_of("DER HUND UND DIE KATZE", "de") == "capitals"


def test_the_ordinary_form_starts_with_a_capital():
    assert ordinary("“WHAT DO I SEE”, I ASK.", "en") == "“What do I see”, I ask."
    assert ordinary("WHAT I SEE", "de") == "What i see"
    assert ordinary("ÄPFEL", "de") == "Äpfel"
    assert ordinary("A DOG, I.E. ME", "en") == "A dog, i.e. me"
    assert ordinary("123", "en") == "123"
    assert ordinary("İKİ KIŞ", "tr") == "İki kış"
    assert ordinary("BİG", "en") == "Big"


def test_a_translation_is_returned_in_the_case():
    assert in_case("Er ißt Straßen.", "capitals", "HE EATS ROADS.", "de") == "ER ISST STRASSEN."
    assert (
        in_case("Ein Mann isst im alten Haus", "title", "A Man Eats in Old Houses", "de")
        == "Ein Mann Isst im Alten Haus"
    )
    assert (
        in_case("Ein Mann isst im alten Haus", "title", "A Man Eats In Old Houses", "de")
        == "Ein Mann Isst Im Alten Haus"
    )
    assert in_case("l’homme n'est pas là", "title", "The Man Is Not There", "de") == "L’homme N'est Pas Là"
    assert in_case("im alten Haus in Rom", "title", "In Old Houses of Rome", "de") == "Im Alten Haus in Rom"
    assert in_case("iki kış", "capitals", "TWO WINTERS", "tr") == "İKİ KIŞ"
    assert in_case("iyi kış günü", "title", "Two Good Winters", "tr") == "İyi Kış Günü"
    assert in_case("e\u0301cole primaire", "title", "Primary School", "fr") == "E\u0301cole Primaire"


def test_only_a_case_that_takes_more_tokens_is_unfamiliar():
    sizes = {"NASA": 4, "nasa": 3, "Nasa": 2, "STOP": 4, "stop": 1, "Stop": 2, "TV": 1, "tv": 1, "Tv": 2}
    assert not is_unfamiliar("NASA", "Nasa", sizes.__getitem__)
    assert is_unfamiliar("STOP", "Stop", sizes.__getitem__)
    assert not is_unfamiliar("TV", "Tv", sizes.__getitem__)
    assert is_unfamiliar("A MAN", "A man", {"A MAN": 5, "A man": 2}.__getitem__)
    assert not is_unfamiliar("A MAN", "A man", {"A MAN": 2, "A man": 2}.__getitem__)
    assert is_unfamiliar("A MAN", "A man", {"A MAN": 5, "A man": 4}.__getitem__)
