"""Translations repeat protected spans exactly once, for any model."""

import dataclasses
import functools
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference import json_lines
from t2t_keras.inference.marked_text import translate_marked
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.text.characters import Characters
from t2t_keras.text.extension import with_symbols
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.terms import Glossary
from t2t_keras.text.tokenizer import Tokenizer
from tests.inference import tiny

KNOWN = frozenset("".join(tiny.SENTENCES) + "0123456789:/()._ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!,")
EMOJI = "👩\u200d💻"


def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(tiny.tokenizer().serialized)
    tokenizer.characters = Characters(KNOWN, KNOWN)
    return tokenizer


class ReplacingModel(tiny.CopyModel):
    """A model that copies, and replaces the token of one text by the token of another."""

    def __init__(self, vocab_size, replaced="", replacement=""):
        super().__init__(vocab_size)
        ids = [np.array(tokenizer().encode(text)[-1:] or [0], np.int32) for text in (replaced, replacement)]
        self._replaced, self._replacement = ids

    def encode(self, source):
        if not self._replaced[0]:
            return source
        return tf.where(source == self._replaced[0], self._replacement[0], source)


@functools.cache
def copier(replaced="", replacement="", **arguments) -> Translator:
    model = ReplacingModel(tiny.tokenizer().vocab_size, replaced, replacement)
    return Translator(tokenizer(), model, **arguments)  # type: ignore[arg-type]


def decode_config(*protect, **settings) -> DecodeConfig:
    return DecodeConfig(beam_size=2, protect=protect, **settings)


LINES = {
    f"Two dogs {EMOJI} play.": (EMOJI,),
    "Hello! 😊 A man. Two 我爱 dogs!": ("😊", "我爱"),
    "😊": ("😊",),
    "A dog.\n\n🇩🇪🇫🇷\nA man": ("🇩🇪🇫🇷",),
    "A man in the snow 1\ufe0f\u20e3": ("1\ufe0f\u20e3",),
    "A man": (),
    "": (),
}


def test_unknown_characters_keep_their_position_and_are_reported():
    translations = copier().translate(list(LINES))
    assert [each.text for each in translations] == list(LINES)
    assert [each.unknown for each in translations] == list(LINES.values())
    assert not any("😊" in each.source for each in translations[1].sentences)


def test_the_model_does_not_read_unknown_characters():
    translator = copier()
    assert translator.translate(["A man 😊 runs"])[0].source_ids == translator.translate(["A man runs"])[0].source_ids


def test_unprotected_texts_are_unchanged():
    model = tiny.CopyModel(tiny.tokenizer().vocab_size)
    (translation,) = Translator(tiny.tokenizer(), model).translate(["A man 😊 runs"])
    assert translation.unknown == () and tiny.tokenizer().decode(translation.source_ids[0]) == "A man 😊 runs"
    (translation,) = copier(settings=decode_config("nothing")).translate(["A man 😊 runs"])
    assert translation.unknown == () and tiny.tokenizer().decode(translation.source_ids[0]) == "A man 😊 runs"


def record_searches(translator: Translator) -> list[int]:
    """Records the number of sentences in each later search."""
    sizes: list[int] = []
    searcher = translator._searcher

    def counting(source_ids, *arguments, **options):
        sizes.append(len(source_ids))
        return searcher(source_ids, *arguments, **options)

    translator._searcher = counting
    return sizes


LINE = "Two dogs play (see https://x.org/a_b). A man"


def test_spans_that_the_model_copies_stay_in_the_source():
    translator = copier(settings=decode_config("urls"))
    sizes = record_searches(translator)
    (translation,) = translator.translate([LINE])
    assert translation.text == LINE and sum(sizes) == 2
    assert "https" in translation.sentences[0].source


def test_spans_that_the_model_changes_are_removed_from_the_source():
    translator = copier("_", "x", settings=decode_config("urls"))
    sizes = record_searches(translator)
    translations = translator.translate([LINE, "A man"])
    assert [each.text for each in translations] == [LINE, "A man"] and sum(sizes) == 5
    assert translations[0].text.count("https://x.org/a_b") == 1


def test_all_hypotheses_contain_the_spans():
    for hypotheses in copier(settings=decode_config("urls")).translate_nbest([LINE, "😊 A man"], 2):
        assert hypotheses and all(
            each.text.count("https://x.org/a_b") + each.text.count("😊") == 1 for each in hypotheses
        )


@pytest.mark.parametrize("replaced", ["", "5"])
def test_spans_of_all_kinds_occur_once(replaced):
    translator = copier(replaced, "x", settings=decode_config("urls,emails,numbers,files", "Keras"))
    lines = [
        "https://x.org",
        "https://x.org https://y.org",
        "See https://x.org, https://y.org and https://x.org again.",
        r"Open C:\a b\c.txt or /etc/hosts.",
        "A man runs 5 km/h, 3.5 GB, 1.2.3 and v2.0",
        "Mail x@y.org: now",
        "Keras and Keras",
    ]
    for line, translation in zip(lines, translator.translate(lines), strict=True):
        spans = [line[span.start : span.end] for span in translator._protected._prepare._finder.spans(line)]
        assert spans and all(translation.text.count(span) == line.count(span) for span in spans)


def test_prefixes_and_constraints_are_not_interrupted_by_spans():
    translator = copier(settings=decode_config())
    (translation,) = translator.translate([Request("😊 A man runs", prefix="Two dogs")])
    assert translation.text.startswith("Two dogs") and translation.text.count("😊") == 1
    (translation,) = translator.translate([Request("A 😊 man runs", constraints=("A man",))])
    assert translation.text == "A man 😊 runs" and translation.unknown == ("😊",)
    with pytest.raises(InputError, match="prefix: cannot be met, because the text is blank"):
        translator.check(Request("😊", prefix="Two"))


def test_glossary_forms_are_not_interrupted_by_spans():
    glossary = Glossary.parsed(["A man\tA man"], "terms.tsv")
    (translation,) = copier(settings=TranslatorSettings(decode_config(), glossary=glossary)).translate(
        ["A 😊 man runs"]
    )
    assert translation.text == "A man 😊 runs" and translation.terms[0].form == "A man"


def test_text_in_capitals_is_lowercased_for_the_model():
    translator = copier(settings=decode_config(case="fallback"))
    line = "TWO DOGS PLAY 😊 IN THE SNOW. A man"
    (translation,) = translator.translate([line])
    assert translation.text == line
    assert [each.source for each in translation.sentences] == ["Two dogs play in the snow.", "A man"]
    (translation,) = copier(settings=decode_config()).translate([line])
    assert translation.sentences[0].source == "TWO DOGS PLAY IN THE SNOW."
    (translation,) = translator.translate([Request("TWO DOGS", prefix="TWO")])
    assert tokenizer().decode(translation.source_ids[0]) == "TWO DOGS", "requests with a prefix keep their case"


def test_case_with_a_lowercase_model():
    translator = copier(settings=decode_config(case="fallback"), data=DataConfig(lowercase="both"))
    assert [each.text for each in translator.translate(["TWO DOGS", "Two dogs"])] == ["TWO DOGS", "two dogs"]


def test_other_tasks_do_not_protect_spans():
    data = DataConfig(task="summarisation")
    (translation,) = copier(data=data).translate(["A man 😊 runs"])
    assert translation.unknown == ()
    for settings in ({"protect": ("urls",)}, {"case": "fallback"}):
        with pytest.raises(InputError, match=f"^decode.{next(iter(settings))}: not supported for the task"):
            copier(settings=DecodeConfig(**settings), data=data)


def test_json_lists_the_unknown_characters():
    translator = copier()
    translations = translator.translate_nbest(["A man 😊 runs ★", "A man"], 1)
    first, second = json.loads(json.dumps(json_lines.answers(translator, translations)))
    assert first["unknown_characters"] == ["😊", "★"] and "unknown_characters" not in second


def test_documents_with_tags_and_spans():
    translator = Translator(tokenizer(), tiny.transformer(), DecodeConfig(beam_size=1, protect=("urls",)))
    document = MarkedDocument.parsed("<p>A <b>man</b> 😊 runs, see https://x.org/a.</p>", "html", "x.html")
    (out,), ((translation,),) = translate_marked(translator, [document])
    assert out.count("😊") == out.count("https://x.org/a") == out.count("<b>") == 1
    assert translation.unknown == ("😊",)


@pytest.mark.parametrize("engine", ["tensorflow", "ctranslate2"])
def test_every_engine_repeats_spans(engine):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    config = dataclasses.replace(decode_config("urls"), max_length_offset=5)
    translator = Translator(tokenizer(), tiny.transformer(), TranslatorSettings(config, engine=engine))
    for hypotheses in translator.translate_nbest(["A man 😊 runs https://x.org/a", "Two 我爱 dogs. 😊 A man"], 2):
        for each in hypotheses:
            assert each.text.count("😊") == 1
            assert each.text.count("https://x.org/a") + each.text.count("我爱") == 1


def test_documented_code_runs(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs/protected_text.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "protected_text.md", "exec"), {"translator": copier(), "Translator": Translator})
    assert capsys.readouterr().out == "A man 😊 runs 5 km/h. ('😊',)\n"


def test_text_that_is_only_a_span():
    translator = copier("_", "x", settings=decode_config("urls"))
    first, second = translator.translate(["A man", Request("https://x.org/a_b", prefix="Two")])
    assert first.text == "A man" and second.text.startswith("Two")


def test_unsatisfiable_constraints_are_marked():
    """A rule bars the second half of the constraint, and other outputs are possible."""
    config = DecodeConfig(beam_size=3, no_repeat_ngram_size=1, max_length_offset=4)
    translator = Translator(tokenizer(), tiny.transformer(), config)
    possible = Request("Two dogs play.", constraints=("dogs",))
    impossible = Request("Two dogs play.", constraints=("Two dogs Two",))
    for requests in ([impossible, possible], [possible, impossible]):
        for request, translation in zip(requests, translator.translate(requests), strict=True):
            assert translation.exists == (request is possible)
            assert ("dogs" in translation.text) == translation.exists
    assert [each.exists for each in translator.translate_nbest([impossible], 3)[0]] == [False]


def test_tags_before_the_source_keep_span_positions():
    symbols = Tokenizer(tiny.tokenizer().serialized)
    tagged = with_symbols(symbols, ["<2de>"])
    tagged.characters = Characters(KNOWN, KNOWN)
    model = tiny.CopyModel(tagged.vocab_size)
    (translation,) = Translator(tagged, model, decode_config()).translate(["<2de> A man 😊 runs. Two dogs"])
    assert translation.unknown == ("😊",) and translation.text == "<2de> A man 😊 runs. <2de> Two dogs"
    (translation,) = Translator(tagged, model, decode_config(tag="<2de>")).translate(["A man 😊 runs. Two dogs"])
    assert translation.text.count("😊") == 1
