"""Models between this project and Hugging Face's transformers, compared with it where it is installed."""

import dataclasses
import gzip
import json
import os
import pathlib
import re

import numpy as np
import pytest

from t2t_keras.formats import huggingface
from tests.formats import foreign
from tests.inference import tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WINDOWS = [
    " ".join(text.split()[start:end]) for text in tiny.SENTENCES[:3] for start in range(3) for end in range(4, 9)
]


def texts() -> list[str]:
    """200 captions of Multi30k, where T2T_KERAS_DOWNLOADS names the folder of its files; else parts of sentences."""
    path = pathlib.Path(os.environ.get("T2T_KERAS_DOWNLOADS", ""), "multi30k", "test_2016_flickr.en.gz")
    return gzip.decompress(path.read_bytes()).decode().splitlines()[:200] if path.is_file() else WINDOWS


TEXTS = texts()
SIZES = {
    f"{stack}_{name}": value
    for stack in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
}
# Searched to the end, as it is here.
SEARCH = {"num_beams": 4, "early_stopping": "never", "no_repeat_ngram_size": 2, "max_new_tokens": 200}


def random_marian(folder):
    """A model of transformers with every weight random; its folder."""
    names = ["</s>", "<unk>", *dict.fromkeys([*foreign.pieces("en"), *foreign.pieces("de")]), ">>deu<<", "<pad>"]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    (folder / "source.spm").write_bytes(foreign.unigram("en"))
    (folder / "target.spm").write_bytes(foreign.unigram("de"))
    pad = len(names) - 1
    config = transformers.MarianConfig(
        vocab_size=len(names),
        d_model=32,
        **SIZES,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        init_std=0.2,
    )
    torch.manual_seed(3)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bias" in name or "norm" in name:
                weight.add_(0.1 * torch.randn_like(weight))
        model.final_logits_bias.copy_(0.5 * torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[0, [1, -2]] = -50  # <unk> and >>deu<< are no text
        model.final_logits_bias[0, 0] = -1
    model.generation_config.update(num_beams=4, length_penalty=1.0, bad_words_ids=[[pad]], no_repeat_ngram_size=2)
    model.save_pretrained(folder)
    tokenizer = transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        source_lang="en",
        target_lang="de",
    )
    tokenizer.save_pretrained(folder)
    return folder


def loaded(folder):
    return transformers.MarianMTModel.from_pretrained(folder).eval(), transformers.MarianTokenizer.from_pretrained(
        folder
    )


def translations(model, tokenizer, texts, **search) -> list[str]:
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    found = tokenizer.batch_decode(model.generate(**inputs, **{**SEARCH, **search}), skip_special_tokens=True)
    return [" ".join(text.split()) for text in found]  # a translation here has no two blanks in a row


def test_a_model_of_transformers_computes_the_same_here(tmp_path):
    folder = random_marian(tmp_path / "marian")
    theirs, tokenizer = loaded(folder)
    model = huggingface.read(folder)
    size = theirs.config.vocab_size
    columns = [*range(1, size), 0]  # our id of each of theirs
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        ours = [*model.tokenizer.source.encode(text), 1]
        assert [columns[number] for number in ids] == ours
        begun = torch.tensor([[size - 1, *ids[:-1]]])
        with torch.no_grad():
            expected = theirs(input_ids=torch.tensor([ids]), decoder_input_ids=begun).logits[0].numpy()
        np.testing.assert_allclose(foreign.logits(model, ours, ours)[:, columns], expected, atol=1e-5)
    expected = translations(theirs, tokenizer, TEXTS, length_penalty=1.0)
    decode = dataclasses.replace(model.config.decode, max_length_offset=200)
    model = dataclasses.replace(model, config=dataclasses.replace(model.config, decode=decode))
    found = foreign.translator_of(model).translate(TEXTS)
    assert [translation.text for translation in found] == expected
    assert len(set(expected)) > 5
    again = tmp_path / "again"
    again.mkdir()
    huggingface.write(model, again)
    assert translations(*loaded(again), TEXTS, length_penalty=1.0) == expected


def test_the_lines_of_the_page_translate(tmp_path, monkeypatch, capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")
    (lines,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "transformers" in block)
    model = foreign.trained()
    (tmp_path / "multi30k_transformers").mkdir()
    huggingface.write(model, tmp_path / "multi30k_transformers")
    monkeypatch.chdir(tmp_path)
    text = foreign.TEXTS_TO_COPY[0]
    exec(lines.replace("A dog runs.", text), {})
    (ours,) = foreign.translator_of(model).translate([text])
    assert " ".join(capsys.readouterr().out.split()) == str([ours.text])


def test_a_model_of_ours_computes_the_same_there(tmp_path):
    model, texts = foreign.trained(), foreign.TEXTS_TO_COPY
    assert huggingface.write(model, tmp_path) == ()
    theirs, tokenizer = loaded(tmp_path)
    assert [tokenizer(text)["input_ids"] for text in texts] == [
        [number - 1 for number in (*model.tokenizer.encode(text), 1)] for text in texts
    ]
    found = foreign.translator_of(model).translate(texts)
    expected = translations(theirs, tokenizer, texts, length_penalty=0.0, no_repeat_ngram_size=0)
    assert [translation.text for translation in found] == expected
    assert len(set(expected)) > 40
