"""Translation of lines: order, unusual and long lines, and the number of traces."""

import dataclasses
import pathlib
import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translation, Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.search.batches import length_batches, padded
from t2t_keras.search.engines import TensorFlowEngine
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.truecase import Truecaser
from tests.inference import tiny

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


SEARCHES = tiny.SharedSearches()


def copier(settings: DecodeConfig | None = None, data: DataConfig | None = None) -> Translator:
    """A translator whose model copies its source."""
    return Translator(tiny.tokenizer(), tiny.copy_model(), TranslatorSettings(settings, engine=SEARCHES), data)  # type: ignore[arg-type]


def texts(translations: list[Translation]) -> list[str]:
    return [translation.text for translation in translations]


@pytest.mark.parametrize("engine", ["pytorch", None, TensorFlowEngine])
def test_unknown_engines_are_rejected(engine):
    with pytest.raises(
        InputError, match=rf"^engine={re.escape(repr(engine))}: valid: 'tensorflow', 'ctranslate2', or an"
    ):
        Translator.load(GOLDEN / "run", settings=TranslatorSettings(engine=engine))
    with pytest.raises(InputError, match="^compute_type='int4': valid: 'float32', 'int8', 'bfloat16'$"):
        Translator.load(GOLDEN / "run", settings=TranslatorSettings(engine="ctranslate2", compute_type="int4"))
    with pytest.raises(InputError, match="^compute_type='int8' requires engine='ctranslate2'$"):
        Translator.load(GOLDEN / "run", settings=TranslatorSettings(compute_type="int8"))


def test_translations_keep_the_order_of_lines():
    lines = [sentence[:length] for length in (9, 44, 3, 20, 1) for sentence in tiny.SENTENCES]
    translator = copier(settings=DecodeConfig(beam_size=2, tokens_per_batch=64))
    assert texts(translator.translate(lines)) == [line.strip() for line in lines]
    assert texts(translator.translate(iter(lines))) == [line.strip() for line in lines]
    for num_best in (0, 3):
        with pytest.raises(InputError, match=rf"num_best must be in \[1, decode.beam_size=2\], got {num_best}"):
            translator.translate_nbest(lines, num_best)
    copier(settings=DecodeConfig(beam_size=350))
    with pytest.raises(InputError, match="decode.beam_size=351 is more than the vocabulary's 350 entries"):
        copier(settings=DecodeConfig(beam_size=351))


def test_single_strings_are_rejected():
    translator = Translator(tiny.tokenizer(), tiny.transformer())
    calls: dict[str, list[Callable[[str], object]]] = {
        "lines": [
            translator.translate,
            translator.translate_aligned,
            lambda text: next(translator.translate_stream(text)),
            lambda text: translator.score(text, ["Ein Hund."]),
        ],
        "translations": [lambda text: translator.explain(["A dog."], text)],
    }
    for argument, functions in calls.items():
        for function in functions:
            with pytest.raises(TypeError, match=f"`{argument}` must be a sequence of texts"):
                function("A dog.")


def test_unusual_lines_give_one_line_each():
    expected_by_line = {
        "": "",
        "   \t ": "",
        "\u00a0": "",
        "\u200b\ufeff": "",
        "\r": "",
        "A man\r": "A man",
        "A\tman": "A man",
        "A\x0bman\u2028is": "A man is",
        "A  \r\n man": "A  \r\n man",
        "A\x00man\u200b": "Aman",
        "日本 \U0001f600 ½": "日本 \U0001f600 ½",
        "A \ud800 man": "A ? man",
        "<pad> </s> <unk>": "<pad> </s> <unk>",
    }
    translations = copier().translate(expected_by_line)
    assert texts(translations) == list(expected_by_line.values())
    assert [t.num_parts for t in translations] == [
        len(text.split("\n")) if text else 0 for text in expected_by_line.values()
    ]
    assert translations[8].line == "A    man"
    whole = copier(settings=DecodeConfig(split="lines")).translate(expected_by_line)
    assert texts(whole) == [" ".join(text.split()) for text in expected_by_line.values()]
    assert copier().translate([]) == []


def test_outputs_contain_no_line_breaks():
    class NewlineModel(tiny.CopyModel):
        """A model that writes the byte of a line feed before its output."""

        def encode(self, source):
            newline = tiny.tokenizer()._processor.piece_to_id("<0x0A>")
            return tf.pad(source, [[0, 0], [1, 0]], constant_values=newline)

        def start_search(self, source, memory, beam_size, *, capabilities=frozenset()):
            return super().start_search(memory, memory, beam_size, capabilities=capabilities)

    tokenizer = tiny.tokenizer()
    translator = Translator(tokenizer, NewlineModel(tokenizer.vocab_size))
    assert tokenizer.decode(translator.search(padded([[5, EOS_ID]])).token_ids[0, 0].numpy())[0] == "\n"
    assert texts(translator.translate(["A man", "dogs"])) == ["A man", "dogs"]


def test_lowercase():
    assert texts(copier(data=DataConfig(lowercase="both")).translate(["Ein MANN", "ÄÖ"])) == ["ein mann", "äö"]


def truecasing_tokenizer(words: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(tiny.tokenizer().serialized)
    tokenizer.truecaser = Truecaser(words)
    return tokenizer


def test_sentences_are_capitalised_and_parts_are_not():
    tokenizer = truecasing_tokenizer(["two"])
    model = tiny.CopyModel(tokenizer.vocab_size)
    data = DataConfig(max_length=len(tokenizer.encode("two dogs play, ")) + 2)
    translator = Translator(tokenizer, model, DecodeConfig(beam_size=2), data)
    (translation,) = translator.translate(["Two dogs. Äpfel!\n„ein Mann“"])
    assert translation.text == "Two dogs. Äpfel!\n„Ein Mann“"
    line = "two dogs play, two dogs play, two dogs play"
    for best in (translator.translate([line])[0], translator.translate_nbest([line], 2)[0][0]):
        assert best.num_parts > 1 and best.text == f"T{line[1:]}"
    assert translator.translate([""])[0].text == ""


def test_prefixes_are_truecased_and_constraints_are_not():
    tokenizer = truecasing_tokenizer(["two"])
    translator = Translator(tokenizer, tiny.transformer(), DecodeConfig(beam_size=2))
    assert translator.encoded(["Two"], ["Two dogs Two"])[1] == [(*tokenizer.encode("two dogs Two"), EOS_ID)]
    assert translator.encoded(["Two"], ["Two"])[0] == [(*tokenizer.encode("Two"), EOS_ID)]
    (translation,) = translator.translate([Request("A man", prefix="Two dogs")])
    assert translation.text.startswith("Two dogs")
    assert tokenizer.decode(translation.token_ids[0]).startswith("two dogs")
    (translation,) = translator.translate([Request("A man", constraints=("Two",))])
    assert "Two" in tokenizer.decode(translation.token_ids[0])


def test_runs_store_truecased_words(tmp_path):
    (tmp_path / "truecase.txt").write_text("two\n", encoding="utf-8")
    model_dir = tiny.make_run(tmp_path / "run", truecase=True)
    assert Translator.load(model_dir).tokenizer.truecaser.words == {"two"}
    (model_dir / "truecase.txt").unlink()
    with pytest.raises(InputError, match=r"run/truecase\.txt is missing"):
        Translator.load(model_dir)


@pytest.mark.quick("line0")
@pytest.mark.parametrize("line", ["Two dogs play. " * 6667, "dog " * 25000, "a" * 100_000, "犬" * 3000])
def test_extremely_long_lines(line):
    translator = copier(settings=DecodeConfig(beam_size=1), data=DataConfig(max_length=200))
    before, translation, after = translator.translate(["A man", line, "dogs"])
    assert (before.text, after.text) == ("A man", "dogs")
    assert translation.num_parts > 1 and translation.is_overlong == (not translation.sentences)
    assert translation.text.replace(" ", "") == line.replace(" ", "")
    assert translation.num_tokens >= translation.num_parts


def test_lines_of_exactly_the_limit_are_not_split():
    translator = copier()
    ids = len(translator.tokenizer.encode(tiny.SENTENCES[0]))
    for limit, parts in [(ids + 1, 1), (ids, 2)]:
        (translation,) = copier(data=DataConfig(max_length=limit)).translate(tiny.SENTENCES[:1])
        assert translation.num_parts == parts and translation.is_overlong == (parts > 1)


def test_length_batches_stay_within_the_budget():
    lengths = np.random.default_rng(1).integers(1, 50, size=200).tolist() + [500]
    batches = list(length_batches(lengths, 256))
    assert sorted(sum(batches, [])) == list(range(201))
    assert batches[0] == [200], "a row that exceeds the budget has a separate batch"
    for batch in batches[1:]:
        assert len(batch) * max(lengths[row] for row in batch) <= 256
    assert len(batches) < 40
    assert list(length_batches([], 256)) == []


def test_progress_is_reported():
    calls = []
    copier().translate([*tiny.SENTENCES, ""], on_progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (5, 5)


@pytest.mark.parametrize("streams", [2, 5])
def test_parallel_batches_equal_sequential_batches(monkeypatch, streams):
    lines = [" ".join(["dogs"] * (i % 7 + 1)) for i in range(40)]
    translator = copier(settings=DecodeConfig(beam_size=2, tokens_per_batch=16))
    expected, seen = translator.translate(lines), []
    monkeypatch.setattr("t2t_keras.machine.streams.num_streams", lambda: streams)
    assert translator.translate(lines, lambda *progress: seen.append(progress)) == expected
    assert seen == sorted(seen) and seen[-1] == (40, 40) and len(seen) > 10


def test_errors_in_a_batch_end_the_translation(monkeypatch):
    monkeypatch.setattr("t2t_keras.machine.streams.num_streams", lambda: 2)
    translator = copier(settings=DecodeConfig(tokens_per_batch=16))
    monkeypatch.setattr(translator, "_searcher", lambda *batch, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        translator.translate(["dogs"] * 40)


def test_translate_stream_equals_translate():
    lines = [*tiny.SENTENCES, "", "A dog"]
    translator = copier()
    read = []
    stream = translator.translate_stream((read.append(line) or line for line in lines), chunk_lines=2)
    first = next(stream)
    assert len(read) == 2, "the stream reads one chunk ahead"
    assert [first, *stream] == translator.translate(lines)
    with pytest.raises(ValueError, match="chunk_lines"):
        next(translator.translate_stream(lines, chunk_lines=0))


@pytest.mark.quick("1")
@pytest.mark.parametrize("beam", [1, 3])
def test_searches_without_scores_agree(beam):
    translator = Translator(tiny.tokenizer(), tiny.transformer(), DecodeConfig(beam_size=beam, max_length_offset=8))
    lines = [*tiny.SENTENCES, "", Request(tiny.SENTENCES[0], prefix="Ein")]
    translations, scored = (translator.translate(lines, scored=scored) for scored in (False, True))
    assert [(t.text, t.token_ids, t.exists) for t in translations] == [(t.text, t.token_ids, t.exists) for t in scored]
    assert all(t.exists for t in translations)
    assert [np.isnan(t.score) for t in translations] == [beam == 1] * 5 + [
        False,
        False,
    ]  # a request with options has a score
    assert [np.isnan(t.log_prob) for t in translations] == [np.isnan(t.score) for t in translations]
    assert not any(np.isnan(t.score) for t in scored)


def test_limits_depend_on_the_source():
    """The limit counts the end symbol on both sides."""

    class EndlessModel(tiny.CopyModel):
        def logits_of(self, column):
            return tf.one_hot(tf.fill(tf.shape(column), 9), self.vocab_size) * 60.0

    tokenizer = tiny.tokenizer()
    translator = Translator(
        tokenizer, EndlessModel(tokenizer.vocab_size), DecodeConfig(beam_size=1, max_length_offset=3)
    )
    result = translator.search(padded([[5, 6, 7, EOS_ID], [5, EOS_ID]]))
    np.testing.assert_array_equal(result.lengths, [[4 + 3], [2 + 3]])
    factor = DecodeConfig(beam_size=1, max_length_offset=3, max_length_factor=1.5)
    result = Translator(tokenizer, EndlessModel(tokenizer.vocab_size), factor).search(
        padded([[5, 6, EOS_ID], [5, EOS_ID]])
    )
    np.testing.assert_array_equal(result.lengths, [[5 + 3], [3 + 3]])


@pytest.mark.quick("1-False")
@pytest.mark.parametrize(("beam", "sampling"), [(1, False), (3, False), (2, True)])
def test_truncated_outputs_are_marked(beam, sampling):
    """Outputs of exactly the limit and blank lines are not marked as truncated."""

    class NeverEarlyModel(tiny.CopyModel):
        """A model that does not end before its source."""

        def logits_of(self, column):
            logits = super().logits_of(column)
            too_early = tf.one_hot(tf.where(column == EOS_ID, -1, EOS_ID), self.vocab_size, True, False)
            return tf.where(too_early, -np.inf, logits)

    tokenizer = tiny.tokenizer()
    lines = ["dogs", tiny.SENTENCES[0], "", f"{tiny.SENTENCES[0]} dogs"]
    num_tokens = len(tokenizer.encode(lines[1])) + 1
    config = DecodeConfig(beam_size=beam, sampling=sampling, max_length_factor=0, max_length_offset=num_tokens)
    translator = Translator(
        tokenizer, NeverEarlyModel(tokenizer.vocab_size), config, DataConfig(max_length=2 * num_tokens)
    )
    translations = translator.translate([*lines, " ".join(lines * 2)])
    assert [each.is_cut for each in translations] == [False, False, False, True, True]
    assert [each.num_parts > 1 for each in translations] == [False, False, False, False, True]
    if not sampling:
        assert all(each.is_cut for each in translator.translate_nbest(lines[3:], beam)[0])


@pytest.mark.quick("3")
@pytest.mark.parametrize("beam", [1, 3])
def test_batched_translation_equals_single_translation(beam):
    config = DecodeConfig(beam_size=beam, max_length_offset=5)
    translator = Translator(tiny.tokenizer(), tiny.transformer(), config)
    lines = [*tiny.SENTENCES, "dogs", "", "A man", "Zwei Hunde spielen"]
    together = translator.translate(lines)
    for line, batched in zip(lines, together, strict=True):
        (alone,) = translator.translate([line])
        assert alone.text == batched.text
        assert alone.score == pytest.approx(batched.score, abs=1e-4)
    assert translator._searcher.num_traces() == 1


def test_changed_weights_take_effect():
    model = tiny.transformer(d_ff=48)
    translator = Translator(tiny.tokenizer(), model, DecodeConfig(beam_size=1))
    (before,) = translator.translate(["A man"])
    for weight in model.trainable_variables:
        weight.assign(weight * 1.7 + 0.01)
    (after,) = translator.translate(["A man"])
    assert before.log_prob != after.log_prob
    assert translator._searcher.num_traces() == 1


def test_load(tmp_path):
    model_dir = tiny.make_run(tmp_path / "run", lowercase="both")
    translator = Translator.load(model_dir)
    assert (
        translator.data.lowercase == "both" and translator.config.beam_size == 2 and translator.max_source_length == 256
    )
    direct = Translator(tiny.tokenizer(), tiny.transformer(), DecodeConfig(beam_size=2))
    assert translator.translate(["a man"]) == direct.translate(["a man"])
    greedy = dataclasses.replace(translator.config, beam_size=1)
    assert Translator.load(model_dir, "latest", greedy).config.beam_size == 1


def test_loading_with_a_different_vocabulary(tmp_path):
    from tests.vocabularies import train_tokenizer

    model_dir = tiny.make_run(tmp_path / "run")
    train_tokenizer(tiny.SENTENCES, 320, model_dir / "vocab.model")
    with pytest.raises(InputError, match=r"320 entries.*350"):
        Translator.load(model_dir)


def test_parts_have_at_least_two_tokens():
    assert copier(data=DataConfig(max_length=1)).max_source_length == 2
