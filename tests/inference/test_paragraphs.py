"""Paragraphs are translated by sentence, and keep the white space between their sentences."""

import numpy as np
import pytest

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference import json_lines
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from tests.export import exporting
from tests.inference import tiny

SENTENCES = ["Two dogs play.", "A man is standing!", "„Zwei Hunde.“", "Dr. Schnee spielt."]
BLANKS = [" ", "\n\n \t", "  "]
PARAGRAPH = "".join(sum(zip(SENTENCES, [*BLANKS, ""], strict=True), ()))


SEARCHES = tiny.SharedSearches()


def copier(**settings) -> Translator:
    data = DataConfig(**{name: settings.pop(name) for name in ("task", "target_language") if name in settings})
    decoding = TranslatorSettings(DecodeConfig(**settings), engine=SEARCHES)
    return Translator(tiny.tokenizer(), tiny.copy_model(), decoding, data)  # type: ignore[arg-type]


def test_sentences_are_translated_separately():
    translator = exporting.translator()
    alone = translator.translate(SENTENCES)
    (whole,) = translator.translate([f" {PARAGRAPH}\n"])
    assert whole.text == "".join(sum(zip([each.text for each in alone], [*BLANKS, ""], strict=True), ()))
    assert whole.score == pytest.approx(sum(each.score for each in alone))
    assert whole.token_ids == sum((each.token_ids for each in alone), ())
    assert [sentence.source for sentence in whole.sentences] == SENTENCES
    assert [sentence.before for sentence in whole.sentences] == ["", *BLANKS]
    for sentence, single in zip(whole.sentences, alone, strict=True):
        result = sentence.translation
        assert (result.text, result.token_ids, result.num_parts) == (single.text, single.token_ids, single.num_parts)
    assert whole.num_parts == 4 + sum(each.num_parts - 1 for each in alone)
    assert all(each.sentences == () for each in alone)


def test_lines_are_not_split_if_disabled():
    (whole,) = copier(split="lines").translate([PARAGRAPH])
    assert whole.num_parts == 1 and whole.sentences == ()
    assert whole.text == " ".join(PARAGRAPH.split())


def test_other_tasks_do_not_split_sentences():
    text = "Two dogs play. A man is standing!"
    assert copier(task="summarisation").translate([text])[0].num_parts == 1


@pytest.mark.integration
def test_only_overlong_sentences_are_split():
    translator = exporting.translator()
    short, long = "Two dogs play.", "Hunde spielen im Schnee, " * 6 + "bellt."
    (translation,) = translator.translate([f"{short} {long}\n{short}"])
    counts = [sentence.translation.num_parts for sentence in translation.sentences]
    assert counts[0] == counts[2] == 1 < counts[1]
    assert translation.is_overlong and not translation.sentences[0].translation.is_overlong
    (alone,) = translator.translate([long])
    assert translation.sentences[1].translation.text == alone.text and alone.is_overlong
    assert not translator.translate([f"{short} {short}"])[0].is_overlong


@pytest.mark.integration
def test_nbest_lists_contain_the_best_sums():
    translator = exporting.translator()
    lists = translator.translate_nbest(SENTENCES[:2], 3)
    hypotheses = translator.translate_nbest([" ".join(SENTENCES[:2])], 3)[0]
    sums = sorted((one.score + two.score for one in lists[0] for two in lists[1]), reverse=True)[:3]
    np.testing.assert_allclose([each.score for each in hypotheses], sums, rtol=1e-5)
    for each in hypotheses:
        assert each.text == " ".join(sentence.translation.text for sentence in each.sentences)


def test_adjacent_sentences_are_joined_with_the_space_of_the_language():
    assert copier(target_language="de").translate(["日本。日本。"])[0].text == "日本。 日本。"
    assert copier(target_language="zh").translate(["日本。日本。"])[0].text == "日本。日本。"


@pytest.mark.integration
def test_prefixes_apply_to_the_first_sentence():
    translator = exporting.translator()
    first, second = "Two dogs play.", "A man is standing!"
    (translation,) = translator.translate([Request(f"{first}\n{second}", prefix="Zwei")])
    (alone,) = translator.translate([Request(first, prefix="Zwei")])
    assert translation.text == f"{alone.text}\n{translator.translate([second])[0].text}"
    assert translation.text.startswith("Zwei")


@pytest.mark.integration
@pytest.mark.parametrize("restrictions", [{"constraints": ("Hunde",)}, {"prefix": "Zwei Hunde. Ein"}])
def test_constraints_and_long_prefixes_apply_to_the_whole_text(restrictions):
    translator = exporting.translator()
    request = Request("Two dogs. A man.", **restrictions)
    (translation,) = translator.translate([request])
    whole = Translator(
        translator.tokenizer,
        translator.model,
        DecodeConfig(**{**vars(translator.config), "split": "lines"}),
        translator.data,
    )
    assert translation.num_parts == 1 and translation.text == whole.translate([request])[0].text


def test_excluded_words_apply_to_all_sentences():
    translator = copier()
    request = Request("Two dogs play. Two dogs play.", excluded=("dogs",))
    assert "dogs" not in translator.translate([request])[0].text


def test_prefixes_of_overlong_sentences_are_rejected():
    request = Request("dogs " * 100 + ". A man.", prefix="A")
    with pytest.raises(InputError, match="^prefix: cannot be met, because the text is too long"):
        exporting.translator().check(request)


@pytest.mark.integration
def test_json_contains_the_sentences():
    translator = exporting.translator()
    paragraph, alone = "Two dogs play.\nA man is standing!", ["Two dogs play.", "A man is standing!"]
    settings = {"token_scores": True, "alignments": True}
    (answer,) = json_lines.answers(translator, translator.translate_nbest([paragraph], 1), **settings)
    separate = json_lines.answers(translator, translator.translate_nbest(alone, 1), **settings)
    assert [sentence.pop("source") for sentence in answer["sentences"]] == alone
    for sentence, expected in zip(answer["sentences"], separate, strict=True):
        assert {**sentence, "token_log_probs": 0, "score": 0, "log_prob": 0} == {
            **expected,
            **dict.fromkeys(("token_log_probs", "score", "log_prob"), 0),
        }
        np.testing.assert_allclose(sentence["token_log_probs"], expected["token_log_probs"], atol=1e-4)
    assert answer["pieces"] == separate[0]["pieces"] + separate[1]["pieces"]
    assert answer["translation"] == "\n".join(each["translation"] for each in separate)
    assert "sentences" not in separate[0]
