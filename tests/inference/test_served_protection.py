"""Texts with protected spans that a server translates equal those of the translator."""

import dataclasses
import json

import numpy as np
import pytest

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference import served_protection
from t2t_keras.inference.served_protection import ServedProtection
from t2t_keras.inference.served_terms import ServedTerms
from t2t_keras.inference.translator import Translator
from tests.inference import tiny
from tests.inference.test_protected_lines import KNOWN, tokenizer

TEXTS = ["A man 😊 runs.", "Two dogs.\n\nA lazy 我爱 fox.  A man", "", "The lazy dog", "😊", "A MAN IN THE SNOW ★"]
DATA = DataConfig(vocab_size=350, max_length=24)
assert KNOWN


def read(folder, decode=None, data=DATA, **changes) -> ServedProtection:
    """Reads the settings and the vocabulary of an export without a graph."""
    for name in ("assets", "assets.extra"):
        (folder / name).mkdir()
    (folder / "saved_model.pb").touch()
    config = Config(model=tiny.transformer().config, data=data, decode=decode or DecodeConfig(beam_size=1))
    (folder / "assets.extra" / "config.json").write_text(json.dumps(config.to_dict()))
    tokenizer().save(folder / "assets" / "vocab.model")
    return ServedProtection(folder, changes)


def groups_of_eight(sizes):
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [order[start : start + 8] for start in range(0, len(order), 8)]


def prepare(protection, texts, fields=None, signature="serving_default", aligns=True, **others):
    inputs = {"text": np.array([text.encode() for text in texts], object), **others}
    return protection(inputs, fields or {}, signature, aligns, groups_of_eight)


def copy_outputs(calls, spoil=""):
    """The outputs of signatures that copy each text without the characters in `spoil`, with a score of -1."""
    outputs = []
    for name, inputs in calls:
        texts = [text.decode() for text in inputs["text"]]
        texts = ["".join(c for c in text if c not in spoil) for text in texts]
        arrays = {"translation": np.array([text.encode() for text in texts], object)}
        arrays["score"] = arrays["log_probability"] = np.full(len(texts), -1.0, np.float32)
        arrays["translations"] = np.array([[text.encode(), f"{text} too".encode()] for text in texts], object)
        arrays["scores"] = np.array([[-1, -2]] * len(texts), np.float32)
        if name == "align":
            pieces = [[f"▁{word}".encode() for word in text.split()] + [b"</s>"] for text in texts]
            width = max(map(len, pieces))
            rows = np.array([row + [b""] * (width - len(row)) for row in pieces], object).reshape(len(texts), width)
            arrays |= {"source_pieces": rows, "target_pieces": rows}
            arrays["attention"] = np.broadcast_to(np.eye(width, dtype=np.float32), (len(texts), width, width))
        outputs.append(arrays)
    return outputs


def answer_texts(texts, spoil=""):
    second_calls = texts.again(copy_outputs(texts.first, spoil))
    return texts.answer(copy_outputs(second_calls, spoil)), second_calls


@pytest.mark.parametrize("aligns", [True, False])
def test_served_texts_equal_those_of_the_translator(tmp_path, aligns):
    protection = read(tmp_path, case="fallback")
    answer, second_calls = answer_texts(prepare(protection, TEXTS, aligns=aligns))
    config = DecodeConfig(beam_size=1, case="fallback")
    translator = Translator(tokenizer(), tiny.CopyModel(tiny.tokenizer().vocab_size), config, DATA)
    expected = translator.translate(TEXTS)
    assert not second_calls
    assert [text.decode() for text in answer["translation"]] == [each.text for each in expected]
    unknown = [tuple(span.decode() for span in row if span) for row in answer["unknown_characters"]]
    assert unknown == [each.unknown for each in expected]
    assert answer["score"].tolist() == [-1, -3, -1, -1, 0, -1]


def test_unknown_model_families(tmp_path):
    read(tmp_path)
    path = tmp_path / "assets.extra" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": {"family": "unheard_of", "width": 3}}))
    answer, _ = answer_texts(prepare(ServedProtection(tmp_path), ["A man 😊 runs."]))
    assert answer["translation"].tolist() == ["A man 😊 runs.".encode()]
    assert ServedTerms(tmp_path).encoder.encode_lines(["A man"])


def test_plain_texts_are_not_protected(tmp_path):
    protection = read(tmp_path)
    assert prepare(protection, ["A man", "THE DOG"]) is None


def test_missing_spans_are_put_back(tmp_path):
    protection = read(tmp_path, DecodeConfig(beam_size=1, protect=("man",)))
    texts = ["A man runs https://x.org/a.", "Two dogs"]
    answer, second_calls = answer_texts(prepare(protection, texts, {"protect": ["urls"]}), spoil=":")
    assert [(name, inputs["text"].tolist()) for name, inputs in second_calls] == [("align", [b"A runs."])]
    assert answer["translation"].tolist() == [text.encode() for text in texts]
    assert "unknown_characters" not in answer
    answer, second_calls = answer_texts(prepare(protection, texts, {"protect": ["urls"]}))
    assert not second_calls and answer["translation"].tolist() == [text.encode() for text in texts]


def test_nbest_translations_contain_the_spans(tmp_path):
    protection = read(tmp_path, DecodeConfig(beam_size=2))
    answer, _ = answer_texts(prepare(protection, ["A man 😊 runs. Two dogs", "A dog", "😊"], signature="nbest"))
    texts = [[text.decode() for text in row] for row in answer["translations"]]
    whole = "A man 😊 runs. Two dogs"
    assert texts == [[whole, f"{whole} too"], ["A dog", "A dog too"], ["😊", ""]]
    assert answer["scores"].tolist() == [[-2, -3], [-1, -2], [0, np.finfo(np.float32).min]]


def test_sentences_use_the_seed_of_their_text(tmp_path):
    seeds = np.array([7, 8], np.int64)
    texts = prepare(read(tmp_path), ["A man 😊 runs. Two dogs", "A dog"], signature="sample", seed=seeds)
    ((name, inputs),) = texts.first
    pairs = dict(zip(inputs["text"].tolist(), inputs["seed"].tolist(), strict=True))
    assert (name, pairs) == ("sample", {b"A man runs.": 7, b"Two dogs": 7, b"A dog": 8})
    answer, _ = answer_texts(texts)
    assert {*answer} == {"translation", "log_probability", "unknown_characters"}


def test_sentences_have_the_tag_of_their_text(tmp_path):
    inputs = {"text": np.array(["A man 😊 runs. Two dogs".encode()], object)}
    texts = read(tmp_path)(inputs, {}, "align", True, groups_of_eight, "<2de>")
    (call,) = texts.first
    assert sorted(call[1]["text"].tolist()) == [b"<2de> A man runs.", b"<2de> Two dogs"]
    assert not texts.again(copy_outputs([("align", {"text": np.array([b"Two dogs", b"A man runs."], object)})]))


def test_only_texts_with_spans_are_aligned_in_small_calls(tmp_path):
    texts = [*(["A man 😊 runs"] * 20), *(["A man"] * 5)]
    calls = prepare(read(tmp_path), texts).first
    assert [(name, len(inputs["text"])) for name, inputs in calls] == [
        *(("align", size) for size in (8, 8, 4)),
        ("serving_default", 5),
    ]


def test_long_sentences_are_translated_without_alignment(tmp_path, monkeypatch):
    monkeypatch.setattr(served_protection, "MAX_LINE_TOKENS", 40)
    words = "man dog " * 20
    texts = prepare(read(tmp_path), [f"A {words}😊 runs", "A man 😊 runs"])
    calls = {name: inputs["text"].tolist() for name, inputs in texts.first}
    assert calls == {"serving_default": [f"A {words}runs".encode()], "align": [b"A man runs"]}
    answer, _ = answer_texts(texts)
    assert answer["translation"].tolist() == [f"A {words}😊 runs".encode(), "A man 😊 runs".encode()]


def test_missing_translations_stay_missing(tmp_path):
    texts = prepare(read(tmp_path), ["A man 😊 runs"])
    outputs = copy_outputs(texts.first)
    outputs[0]["score"][:] = np.finfo(np.float32).min
    outputs[0]["translation"][:] = b""
    assert not texts.again(outputs)
    answer = texts.answer([])
    assert answer["translation"].tolist() == [b""] and answer["score"][0] == np.finfo(np.float32).min


def test_alignments_of_documents(tmp_path):
    texts = prepare(read(tmp_path), ["A man 😊 runs", "Two dogs"], signature="align")
    assert {name for name, _ in texts.first} == {"align"}
    assert not texts.again(copy_outputs(texts.first))
    first, second = texts.aligned([])
    assert first.text == "A man 😊 runs" and second.text == "Two dogs"
    assert {first.text[a:b] for a, b, c, d in first.links if (a, b) == (c, d)} >= {"A", "man", "😊", "runs"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"protect": ["(a+)+"]}, "'protect' must be a list of urls, emails, numbers, files"),
        ({"protect": "urls"}, "'protect' must be a list"),
        ({"protect": [["urls"]]}, "'protect' must be a list"),
        ({"case": "upper"}, "'case' must be exact or fallback; got 'upper'"),
        ({"case": ["exact"]}, "'case' must be exact or fallback"),
    ],
)
def test_invalid_fields_are_rejected(tmp_path, fields, problem):
    with pytest.raises(InputError, match=problem):
        prepare(read(tmp_path), ["A man"], fields)


def test_other_tasks_ignore_server_settings(tmp_path):
    protection = read(tmp_path, data=dataclasses.replace(DATA, task="summarisation"), protect=("urls",))
    assert prepare(protection, ["See https://x.org"]) is None
    with pytest.raises(InputError, match=r"^decode\.protect: not supported for the task summarisation"):
        prepare(protection, ["See https://x.org"], {"protect": ["urls"]})


def test_models_of_other_projects_are_not_protected(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    protection = ServedProtection(tmp_path)
    assert prepare(protection, ["😊"]) is None
    with pytest.raises(InputError, match="'protect' requires an export with a vocabulary"):
        prepare(protection, ["😊"], {"protect": []})
