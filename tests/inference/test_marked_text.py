"""Translation of documents with markup."""

import pathlib
import re

import numpy as np
import pytest

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.marked_text import TokenLinks, aligned, token_links, translate_marked
from t2t_keras.inference.translation import Translation
from t2t_keras.inference.translator import Translator
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.markup.placing import AlignedText, placed
from t2t_keras.text.words import units
from tests.inference import tiny

DOCUMENT = "<p>Two <b>dogs</b> play, {name}.</p><p>12</p><code>x</code>"


def diagonal(length: int) -> TokenLinks:
    return TokenLinks([(n, n) for n in range(length)], [])


@pytest.mark.parametrize("max_length", [256, 9])
def test_tags_are_preserved_by_any_model(max_length):
    config = DecodeConfig(beam_size=1, max_length_offset=3)
    translator = Translator(tiny.tokenizer(), tiny.transformer(), config, DataConfig(max_length=max_length))
    document = MarkedDocument.parsed(DOCUMENT, "html", "in.html")
    (out, empty), (translations, none) = translate_marked(translator, [document, MarkedDocument(())])
    assert (len(translations), empty, none) == (1, "", [])
    assert out.startswith("<p>") and out.endswith("</p><p>12</p><code>x</code>")
    assert all(out.count(tag) == 1 for tag in ("<b>", "</b>", "{name}", "<code>"))


def test_links_refer_to_characters():
    translator = Translator(tiny.tokenizer(), tiny.transformer(), DecodeConfig(beam_size=1, max_length_offset=3))
    text = "Two dögs 😀 play."
    (translation,) = translator.translate([text])
    pieces = translator.tokenizer.pieces(translation.source_ids[0])
    links = aligned(text, text, [pieces], [pieces], [diagonal(len(pieces) - 1)]).links
    assert all(link[:2] == link[2:] for link in links)
    spelled = [text[start:end].strip() for start, end, *_ in links]
    expected = [piece.replace("▁", "") for piece in pieces[:-1]]
    assert [s for s, e in zip(spelled, expected, strict=True) if not e.startswith("<0x")] == [
        e for e in expected if not e.startswith("<0x")
    ]


def test_tokens_are_linked_to_the_source_tokens_that_they_attend_to_most():
    source, target = ["▁a", "▁b", "▁c", "</s>"], ["▁x", "▁y", "▁z", "</s>"]
    rows = [[0.7, 0.2, 0.1, 0.0], [0.0, 0.3, 0.1, 0.6], [0.6, 0.0, 0.4, 0.0], [0.0, 0.0, 0.9, 0.1]]
    padded = np.pad(np.array(rows), ((0, 2), (0, 1)), constant_values=1.0)
    links, weak_links = token_links(source, target, padded)
    assert links == [(0, 0), (0, 2)]  # "▁y" attends most to the end symbol
    assert weak_links == [(1, 1), (2, 2)]
    assert token_links(["</s>"], target, padded) == token_links(source, [], padded) == ([], [])


def test_weak_links_place_elements_whose_words_have_no_links():
    (segment,) = MarkedDocument.parsed("Click <a>here</a> <b>now</b>.", "html", "in.html").segments
    links = (0, 6, 0, 5), (12, 17, 11, 14), (17, 18, 14, 15)
    lost = "Klickt hier <a></a><b>jetzt</b>."
    for weak_links, expected in {
        (): lost,
        ((7, 11, 6, 10),): "Klickt <a>hier</a> <b>jetzt</b>.",
        ((12, 17, 6, 10),): lost,  # linked words remain in their element
        ((17, 18, 6, 10),): lost,  # a link on a punctuation mark would be hard to see
    }.items():
        assert placed(segment, AlignedText("Klickt hier jetzt.", links, weak_links)) == expected


@pytest.mark.parametrize(
    ("text", "sources", "expected"),
    [
        ("Drücke, um zu", [0, 1, 2, 1], "Drücke <kbd>x</kbd>, um zu gehen"),
        ("Drücke (zu", [0, 1, 1], "Drücke <kbd>x</kbd> (zu gehen"),
        ("Tapez : pour", [0, 1, 1], "Tapez <kbd>x</kbd> : pour gehen"),
    ],
)
def test_marks_after_a_placeholder_have_the_space_of_the_translation(text, sources, expected):
    (segment,) = MarkedDocument.parsed("Press <kbd>x</kbd> to go", "html", "in.html").segments
    text += " gehen"
    places = [(unit.start, unit.end) for unit in segment.units]
    links = [(*unit, *places[source]) for unit, source in zip(units(text), [*sources, 2], strict=True)]
    assert placed(segment, AlignedText(text, tuple(links))) == expected


def test_models_without_attention_are_rejected():
    translator = Translator(tiny.tokenizer(), tiny.CopyModel(tiny.tokenizer().vocab_size), DecodeConfig(beam_size=1))
    with pytest.raises(InputError, match="attention"):
        translate_marked(translator, [MarkedDocument.parsed(DOCUMENT, "html", "in.html")])


def test_documented_code_runs():
    page = (pathlib.Path(__file__).parents[2] / "docs/markup.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    config = DecodeConfig(beam_size=1, max_length_offset=3)
    names = {"translator": Translator(tiny.tokenizer(), tiny.transformer(), config)}
    exec(compile(code, "markup.md", "exec"), names)
    assert names["translated"].startswith("<p>") and names["translated"].count("<b>") == 1


def test_pieces_that_differ_from_the_text_have_proportional_positions():
    alignment = aligned("abcd", "wxyz", [["▁ab", "cdefgh"]], [["▁wx", "yzyzyz"]], [diagonal(2)])
    assert alignment.links == ((0, 1, 0, 1), (1, 4, 1, 4))


def test_positions_ignore_case_and_tags():
    pieces = ["▁ein", "▁Hund", "</s>"]
    links = TokenLinks([(1, 0), (2, 1)], [])
    alignment = aligned("A dog", "Ein Hund", [["<2de>", "▁a", "▁dog", "</s>"]], [pieces], [links])
    assert alignment.links == ((0, 3, 0, 1), (3, 8, 1, 5))
    alignment = aligned("Übung hilft", "A dog", [["▁übung", "▁hilft", "</s>"]], [["▁a", "▁dog"]], [diagonal(2)])
    assert alignment.links == ((0, 1, 0, 5), (1, 5, 6, 11))


def test_positions_in_sentences_without_spaces():
    pieces = [["▁狗", "跑", "。", "</s>"], ["▁猫", "</s>"], ["▁", "<0xE9>", "<0xB8>", "<0x9F>", "</s>"]]
    links = [diagonal(len(part) - 1) for part in pieces]
    alignment = aligned("狗跑。猫鸟", "狗跑。猫鸟", pieces, pieces, links)
    assert all(link[:2] == link[2:] for link in alignment.links)
    assert [link[:2] for link in alignment.links][:4] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_untranslatable_sentences_stay_unchanged():
    translator = Translator(tiny.tokenizer(), tiny.transformer(), DecodeConfig(beam_size=1, max_length_offset=3))

    def return_nothing(requests, *arguments, **options):
        ids = [(*request.parts[0], 1) for request in requests]
        return [[Translation("", -np.inf, -np.inf, 0, 1, (each,), ((),))] for each in ids]

    translator._translations = return_nothing
    (out,), _ = translate_marked(translator, [MarkedDocument.parsed(DOCUMENT, "html", "in.html")])
    assert out == DOCUMENT
