"""Lines as the model reads them, and the restoration of the original."""

import string

import pytest

from t2t_keras.text.language_codes import Languages
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.preparation import Preparation
from t2t_keras.text.protection.removal import Sentence
from t2t_keras.text.protection.spans import SpanFinder
from t2t_keras.text.sentences import find_sentences
from t2t_keras.text.words import units

KNOWN = frozenset(string.ascii_letters + string.digits + " .,!?'-:/<>")


def num_tokens(text: str) -> int:
    """Lowercase words, and first words with a capital, are one token; other words are spelled."""
    words = text.split()
    return sum(1 if word[not n :] == word[not n :].lower() else len(word) for n, word in enumerate(words))


def preparation(*protect: str, **options) -> Preparation:
    return Preparation(SpanFinder(protect, KNOWN), Languages("en", "de"), **options)


def copied(text: str) -> list[Sentence]:
    return [
        Sentence(before, sentence, AlignedText.unchanged(sentence)) for before, sentence in find_sentences(text, "en")
    ]


def test_plain_lines_need_no_preparation():
    assert preparation("urls", num_tokens=num_tokens)("A man eats. THE dog runs with NASA.") is None


def test_spans_stay_at_first_if_the_model_knows_their_characters():
    prepare = preparation("urls")
    prepared = prepare("See https://x.org 😊 now")
    assert prepared.text == "See https://x.org now" and prepared.remaining == ("https://x.org",)
    assert prepared.unknown == ("😊",)
    assert prepared.is_met("Da https://x.org") and not prepared.is_met("Da x.org")
    retry = prepare("See https://x.org 😊 now", keeps_spans=False)
    assert retry.text == "See now" and retry.remaining == ()
    assert retry.finished(copied("See now")).text == "See https://x.org 😊 now"


@pytest.mark.parametrize("line", ["😊", "????", "我爱 - 北京!", "https://x.org", "😊 😊\n★"])
def test_a_line_without_words_is_unchanged(line):
    prepared = preparation("urls")(line, keeps_spans=False)
    assert prepared.text == "" and prepared.finished([]).text == line


def test_each_sentence_has_its_case():
    prepared = preparation(num_tokens=num_tokens)("A MAN EATS.  The dog runs. I Like Big Dogs 😊!")
    assert prepared.text == "A man eats.  The dog runs. I like big dogs!"
    german = ["Ein Mann ißt.", "Der Hund rennt.", "Ich mag große Hunde!"]
    sentences = [
        each._replace(translation=AlignedText(text, ()))
        for each, text in zip(copied(prepared.text), german, strict=True)
    ]
    assert prepared.finished(sentences).text == "EIN MANN ISST.  Der Hund rennt. Ich Mag Große Hunde 😊!"


def test_spans_keep_their_case_in_a_line_of_capitals():
    prepared = preparation("urls", num_tokens=num_tokens)("SEE HTTPS://X.ORG/A FOR MANY DETAILS.")
    assert prepared.text == "See for many details." and prepared.remaining == ()
    assert prepared.finished(copied(prepared.text)).text == "SEE HTTPS://X.ORG/A FOR MANY DETAILS."


def test_the_case_stays_if_asked():
    assert preparation(num_tokens=num_tokens)("A MAN EATS MEAT.", keeps_case=True) is None


def test_the_links_refer_to_the_line():
    line = "A man 😊 eats 5 我 dogs… Yes"
    prepared = preparation()(line)
    assert prepared.text == "A man eats 5 dogs... Yes"
    text = prepared.aligned(copied(prepared.text))
    assert text.text == "A man 😊 eats 5 我 dogs... Yes"
    words = {(text.text[a:b], line[c:d]) for a, b, c, d in text.links}
    assert {("A", "A"), ("😊", "😊"), ("eats", "eats"), ("我", "我"), ("dogs", "dogs")} <= words


@pytest.mark.parametrize(
    "line",
    [
        "The dog … and the cat. " * 2_000,
        "“Wait…” – said the dog: 😊… “no…”!",
        "a😊b -😊- x’s x.org/a’b (😊word) 😊\u0301x\n\n😊 I’m 我爱 5…",
        "A MAN EATS… 😊 MEAT “NOW”",
    ],
)
def test_each_unit_is_linked_with_itself(line):
    prepared = preparation("urls", r"(?<=o)g", num_tokens=num_tokens)(line, keeps_spans=False)
    text = prepared.aligned(copied(prepared.text))
    for a, b, c, d in text.links:
        source, target = line.strip()[c:d], text.text[a:b]
        assert target in (source, prepared.readable(source), prepared.readable(source)[:1])
    assert len(text.links) == len(units(prepared.text)) + len(prepared.removed)


def test_links_of_spans_that_change_their_order_or_are_invented():
    line = "dogs 😊 eat ★ meat"
    prepared = preparation()(line)
    assert prepared.text == "dogs eat meat"
    links = ((0, 4, 9, 13), (5, 8, 5, 8), (11, 15, 0, 4))
    (sentence,) = copied(prepared.text)
    translation = AlignedText("meat eat ★ dogs", links, ((0, 4, 0, 4), (11, 15, 5, 8)))
    text = prepared.aligned([sentence._replace(translation=translation)])
    assert text.text.index("★") < text.text.index("😊") and text.text.count("★") == 1
    assert {(text.text[a:b], line[c:d]) for a, b, c, d in text.links} == {(word, word) for word in line.split()}
    assert {(text.text[a:b], line[c:d]) for a, b, c, d in text.weak_links} == {("meat", "dogs"), ("dogs", "eat")}


def test_capitals_of_two_letters_move_the_links():
    prepared = preparation(num_tokens=num_tokens)("A MAN EATS 😊 MEAT")
    (sentence,) = copied(prepared.text)
    links = ((0, 3, 2, 5), (4, 7, 6, 10), (8, 15, 11, 15))
    text = prepared.finished([sentence._replace(translation=AlignedText("ißt ißt Fleisch", links))])
    assert text.text == "ISST ISST 😊 FLEISCH"


def test_a_symbol_in_front_is_not_text():
    prepare = preparation(symbols=["<2de>", "<2fr>"])
    assert prepare.head("<2fr>  A man") == "<2fr>  " and prepare.head("A <2fr> man") == ""
    prepared = preparation(num_tokens=num_tokens, symbols=["<2de>"])("<2de> A MAN EATS.  THE DOG.")
    assert prepared.text == "<2de> A man eats.  The dog." and [each.case for each in prepared.cases] == ["capitals"] * 2
    prepared = prepare("<2de> 😊!!")
    assert prepared.text == "" and prepared.finished([]).text == "😊!!"
