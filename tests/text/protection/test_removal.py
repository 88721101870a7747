"""Spans are removed from a text and restored in its translation."""

import random
import string

import pytest

from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.removal import (
    Removed,
    Sentence,
    diagonal,
    remove,
    repeats,
    restored,
    without_spans,
)
from t2t_keras.text.protection.spans import SpanFinder
from t2t_keras.text.sentences import find_sentences
from t2t_keras.text.words import units

FINDER = SpanFinder(["urls,numbers"], frozenset(string.ascii_letters + string.digits + " .,!?'-"))


def remove_spans(text: str) -> tuple[str, list[Removed]]:
    return remove(text, [span._replace(is_removed=True) for span in FINDER.spans(text)], FINDER)


def copied(text: str) -> list[Sentence]:
    """Returns the sentences of a text, translated to themselves."""
    return [
        Sentence(before, sentence, AlignedText.unchanged(sentence)) for before, sentence in find_sentences(text, "en")
    ]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Hello! 😊 A man", "Hello! A man"),
        ("😊", ""),
        ("😊 Hello", "Hello"),
        ("Hello😊", "Hello"),
        ("A 😊man runs", "A man runs"),
        ("A man😊 runs.", "A man runs."),
        ("A man likes it 😊.", "A man likes it."),
        ("A man goes 5 km.", "A man goes."),
        ("A dog.\n😊\nA cat.", "A dog.\n\nA cat."),
        ("A dog.\n😊 A cat.", "A dog.\nA cat."),
        ("A dog. 😊\nA cat.", "A dog.\nA cat."),
        ("Go 5 km 😊 😊 and 😊😊 again", "Go and again"),
        ("What????", "What?"),
        ("What???? Yes.", "What? Yes."),
        ("good😊bad", "good bad"),
        ("Hello 😊! Yes.", "Hello! Yes."),
        ("a https://x.org/a_(b), b", "a, b"),
        ("https://a.org https://b.org", ""),
    ],
)
def test_a_copy_gets_everything_back(text, rest):
    actual, removed = remove_spans(text)
    assert actual == rest
    sentences = copied(actual)
    result = restored(removed, sentences)
    assert result.text == text
    assert [result.text[start:end] for start, end in result.ranges] == [each.text for each in removed]
    aligned = [each._replace(translation=diagonal(each.source, each.source)) for each in sentences]
    assert restored(removed, aligned).text == text


def test_a_sentence_ends_before_an_emoji_without_blanks():
    rest, removed = remove_spans("Great!😊A man.")
    assert rest == "Great! A man."
    assert restored(removed, copied(rest)).text == "Great!😊 A man."


def test_random_texts_get_everything_back():
    draw = random.Random(1)
    words = ["a", "man", "Dogs", "it's", "end.", "so,", "What?", "\n"]
    spans = ["😊", "👩\u200d💻", "我爱", "5 km", "https://x.org/a", "🇩🇪", "1\ufe0f\u20e3"]
    for _ in range(300):
        text = " ".join(draw.choice(spans if draw.random() < 0.3 else words) for _ in range(draw.randrange(1, 12)))
        text = text.replace(" \n ", "\n").strip()
        rest, removed = remove_spans(text)
        assert not FINDER.spans(rest)
        assert restored(removed, copied(rest)).text == text, text


def aligned_sentence(source: str, target: str, pairs: list[tuple[int, int]]) -> Sentence:
    """Returns a sentence whose words are aligned by their numbers."""
    sources, targets = units(source), units(target)
    links = tuple((*targets[there], *sources[here]) for here, there in pairs)
    return Sentence("", source, AlignedText(target, links))


def test_a_span_follows_the_word_that_is_aligned_with_its_neighbour():
    (span,) = remove_spans("I have 😊 seen dogs")[1]
    swapped = aligned_sentence("I have seen dogs", "Ich habe Hunde gesehen", [(0, 0), (1, 1), (2, 3), (3, 2)])
    assert restored([span], [swapped]).text == "Ich habe Hunde 😊 gesehen"
    (span,) = remove_spans("I have seen😊 dogs")[1]
    assert restored([span], [swapped]).text == "Ich habe Hunde gesehen😊"


def test_a_span_before_the_final_mark_stays_before_it_and_one_after_it_behind():
    unaligned = Sentence("", "A man runs.", AlignedText("Ein Mann rennt.", ()))
    assert restored(remove_spans("A man runs 😊.")[1], [unaligned]).text == "Ein Mann rennt 😊."
    assert restored(remove_spans("A man runs. 😊")[1], [unaligned]).text == "Ein Mann rennt. 😊"
    open_end = Sentence("", "A man runs", AlignedText("Ein Mann rennt.", ()))
    assert restored(remove_spans("A man runs 5 km")[1], [open_end]).text == "Ein Mann rennt 5 km."


def test_nothing_is_inserted_into_phrases_or_before_the_front():
    (span,) = remove_spans("A 😊 big dog")[1]
    sentence = aligned_sentence("A big dog", "Ein großer Hund", [(0, 0), (1, 1), (2, 2)])
    assert restored([span], [sentence]).text == "Ein 😊 großer Hund"
    assert restored([span], [sentence], ["Ein großer"]).text == "Ein großer 😊 Hund"
    (span,) = remove_spans("😊 A big dog")[1]
    assert restored([span], [sentence], (), len("Ein")).text == "Ein 😊 großer Hund"


def test_spans_count_once_each():
    assert repeats("see https://a.org, 5 km", ["5 km", "https://a.org"])
    assert not repeats("see https://a.org https://a.org", ["https://a.org"])
    assert not repeats("see 15 km", ["5 km"]) and not repeats("速度为15 km", ["5 km"])
    assert repeats("速度为5 km和v2吗", ["5 km", "v2"])
    assert repeats("https://a.org/b and https://a.org", ["https://a.org", "https://a.org/b"])
    assert not repeats("nothing", ["x"]) and repeats("nothing", [])


def test_spans_that_the_model_invented_are_removed_with_their_links():
    text = without_spans(AlignedText("Ein 😊 Hund 😊", ((0, 3, 0, 1), (4, 5, 0, 1), (6, 10, 2, 5))), ["😊"])
    assert text == AlignedText("Ein  Hund ", ((0, 3, 0, 1), (5, 9, 2, 5)))
    many = without_spans(AlignedText.unchanged("a😊" * 9_000), ["😊"])
    assert (many.text, len(many.links)) == ("a" * 9_000, 9_000)
