"""The engines of `decode.py`, each of which translates token ids in a separate process.

    python -m benchmarks.decode_engines ENGINE TASK.json WEIGHTS.npz ROLE

The role "turns" translates all sentences on each request; "proof" returns translations of a few sentences and scores of
given translations; "score" returns only these scores. No engine writes padding, and CTranslate2's model gives it no
probability, although random weights would. All scores therefore exclude padding: the probabilities of the other tokens
sum to 1.
"""

import dataclasses
import functools
import json
import os
import sys
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

from benchmarks.turns import serve

if TYPE_CHECKING:
    from t2t_keras.config.decode_config import ComputeType

Ids = list[list[int]]

PAD_ID, EOS_ID = 0, 1
NEVER = -1e9  # a logit
WITH_MKL = "_mkl"  # suffix of a CTranslate2 engine whose process has the variable CT2_USE_MKL


@dataclasses.dataclass(frozen=True)
class Engine:
    """The functions of an engine, and its versions.

    Attributes:
        translate: turns source ids, which end with the end symbol, into output ids without it.
        score: returns the log-probability of each target token among all tokens except padding; sources and targets
            have end symbols.
        versions: versions of the packages.
        translate_texts: turns texts into texts; None means that `Pieces.around` wraps `translate`.
    """

    translate: Callable[[Ids], Ids]
    score: Callable[[Ids, Ids], list[list[float]]]
    versions: str
    translate_texts: Callable[[list[str]], list[str]] | None = None


class Pieces:
    """Converts texts to ids and back; `sides` are the paths of the source and the target vocabulary."""

    def __init__(self, sides: list[str]) -> None:
        import sentencepiece

        self._source, self._target = (sentencepiece.SentencePieceProcessor(model_file=path) for path in sides)

    def around(self, translate: Callable[[Ids], Ids]) -> Callable[[list[str]], list[str]]:
        """Returns a function from texts to texts for an engine of ids."""
        return lambda texts: self._target.decode(translate([[*ids, EOS_ID] for ids in self._source.encode(texts)]))

    def outputs(self, texts: list[str]) -> Ids:
        """Returns the ids of output texts."""
        return self._target.encode(texts)


def _ours(
    task: dict[str, Any],
    weights: dict[str, np.ndarray],
    compute_type: "ComputeType | None" = None,
    bfloat16: bool = False,
) -> Engine:
    from t2t_keras.machine.streams import map_in_parallel, share_out_cores

    share_out_cores()
    import tensorflow as tf

    from t2t_keras.config import DecodeConfig, TransformerConfig
    from t2t_keras.inference.ctranslate2_engine import CTranslate2Engine
    from t2t_keras.inference.forced import token_log_probs_function
    from t2t_keras.inference.translator import Translator
    from t2t_keras.inference.translator_settings import TranslatorSettings
    from t2t_keras.models.transformer import Transformer
    from t2t_keras.models.weights import assign_weights
    from t2t_keras.search.batches import padded
    from t2t_keras.search.engines import TensorFlowEngine
    from t2t_keras.text.tokenizer import Tokenizer

    model = Transformer(TransformerConfig(**task["model"]))
    model.build()
    assign_weights(model, trained_weights(weights, task["model"]))
    config = DecodeConfig(
        beam_size=task["beam_size"],
        length_penalty=0.0,
        min_length=task["output_tokens"] or 0,
        max_length_factor=0.0,
        max_length_offset=task["output_tokens"] or task["max_tokens"],
        tokens_per_batch=task["batch_sentences"] * max(map(len, task["sources"])),
        bfloat16=bfloat16,
    )
    engine = CTranslate2Engine(compute_type) if compute_type else TensorFlowEngine()
    searcher = engine.searcher(model, config, (), None)
    scoring = types.SimpleNamespace(
        states=model.states,
        logits=lambda hidden: model.logits(hidden) + tf.one_hot(PAD_ID, model.config.vocab_size, NEVER),
    )
    token_log_probs = token_log_probs_function(scoring)

    def search(batch: Ids) -> Ids:
        result = searcher(padded(batch), only_best=True, scored=False)
        return [without_end(ids) for ids in result.token_ids[:, 0].numpy().tolist()]

    def translate(sources: Ids) -> Ids:
        result = map_in_parallel(search, batches(sources, task["batch_sentences"]))
        return [ids for batch in result for ids in batch]

    def score(sources: Ids, targets: Ids) -> list[list[float]]:
        rows = token_log_probs(padded(sources), padded(targets)).numpy().tolist()
        return [row[: len(target)] for row, target in zip(rows, targets, strict=True)]

    translator = Translator(Tokenizer.load(task["vocabularies"][1]), model, TranslatorSettings(config, engine=engine))

    def translate_texts(texts: list[str]) -> list[str]:
        return [translation.text for translation in translator.translate(texts, scored=False)]

    return Engine(translate, score, f"tensorflow {tf.__version__}", translate_texts)


def trained_weights(weights: dict[str, np.ndarray], model: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns the weights without computed position tables; learned tables get their original length."""
    learned = model["position_encoding"] == "learned"
    return {
        name: array[: model["max_positions"]] if "_positions/" in name else array
        for name, array in weights.items()
        if learned or "_positions/" not in name
    }


def _ctranslate2(
    task: dict[str, Any], weights: dict[str, np.ndarray], compute_type: str = "float32", one_worker: bool = False
) -> Engine:
    """CTranslate2 with one worker of one thread per core, or with one worker that uses all cores."""
    import ctranslate2

    from benchmarks.ctranslate2_model import vocabulary
    from t2t_keras.machine.processor import num_cores

    names = vocabulary(task["model"]["vocab_size"])
    ids_of = {name: i for i, name in enumerate(names)}
    translator = ctranslate2.Translator(
        task["ctranslate2_model"],
        device="cpu",
        compute_type=compute_type,
        inter_threads=1 if one_worker else num_cores(),
        intra_threads=num_cores() if one_worker else 1,
    )

    def names_of(rows: Ids) -> list[list[str]]:
        return [[names[i] for i in row] for row in rows]

    def translate(sources: Ids) -> Ids:
        results = translator.translate_batch(
            names_of([without_end(source) for source in sources]),
            beam_size=task["beam_size"],
            length_penalty=0.0,
            # Batches of equal numbers of tokens, as ours, are faster than batches of equal numbers of sentences.
            max_batch_size=task["batch_sentences"] * max(map(len, task["sources"])),
            batch_type="tokens",
            min_decoding_length=task["output_tokens"] or 0,
            max_decoding_length=task["output_tokens"] or task["max_tokens"],
        )
        return [[ids_of[name] for name in result.hypotheses[0]] for result in results]

    def score(sources: Ids, targets: Ids) -> list[list[float]]:
        pairs = ([without_end(ids) for ids in side] for side in (sources, targets))
        results = translator.score_batch(*map(names_of, pairs))
        return [list(result.log_probs) for result in results]

    return Engine(translate, score, f"ctranslate2 {ctranslate2.__version__}")


def marian(task: dict[str, Any], weights: dict[str, np.ndarray]) -> Engine:
    """Hugging Face's Marian on PyTorch, or M2M100 for models with pre-norm; see `transformers_model`."""
    import torch
    import transformers

    from benchmarks.transformers_model import from_weights
    from t2t_keras.machine.processor import num_cores

    torch.set_num_threads(num_cores())
    model = from_weights(weights, task["model"])

    def tensor(rows: Ids) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)

    @torch.inference_mode()
    def translate(sources: Ids) -> Ids:
        result = []
        for batch in batches(sources, task["batch_sentences"]):
            ids = tensor(batch)
            outputs = model.generate(
                input_ids=ids,
                attention_mask=(ids != 0).long(),
                num_beams=task["beam_size"],
                do_sample=False,
                length_penalty=0.0,
                min_new_tokens=task["output_tokens"],
                max_new_tokens=task["output_tokens"] or task["max_tokens"],
                suppress_tokens=[PAD_ID],
            )
            result += [without_end(row[1:]) for row in outputs.tolist()]
        return result

    @torch.inference_mode()
    def score(sources: Ids, targets: Ids) -> list[list[float]]:
        ids, expected = tensor(sources), tensor(targets)
        shifted = torch.nn.functional.pad(expected, (1, 0))[:, :-1]
        logits = model(input_ids=ids, attention_mask=(ids != 0).long(), decoder_input_ids=shifted).logits
        logits[:, :, PAD_ID] = NEVER
        result = logits.log_softmax(-1).gather(2, expected[:, :, None])[:, :, 0].tolist()
        return [row[: len(target)] for row, target in zip(result, targets, strict=True)]

    return Engine(translate, score, f"torch {torch.__version__}, transformers {transformers.__version__}")


ENGINES: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Engine]] = {
    "ours": _ours,  # the search of `Translator.translate`, with the same number of threads
    "ours_bfloat16": functools.partial(_ours, bfloat16=True),  # scores of given translations are in float32
    "ours_ctranslate2": functools.partial(_ours, compute_type="float32"),  # `--engine=ctranslate2`
    "ours_ctranslate2_int8": functools.partial(_ours, compute_type="int8"),
    "ctranslate2_float32": _ctranslate2,  # the fastest choice here
    "ctranslate2_int8": functools.partial(_ctranslate2, compute_type="int8"),
    "ctranslate2_one_worker": functools.partial(_ctranslate2, one_worker=True),  # can be better for one sentence
    "ctranslate2_int8_one_worker": functools.partial(_ctranslate2, compute_type="int8", one_worker=True),
    "marian": marian,
}


def batches(rows: Ids, size: int) -> list[Ids]:
    """Returns the rows in groups of a size, in order."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def without_end(ids: list[int]) -> list[int]:
    """Returns the ids before the end symbol, or before the padding of an output without one."""
    return ids[: next((place for place, token in enumerate(ids) if token in (EOS_ID, PAD_ID)), len(ids))]


def timed_turn(engine: Engine, task: dict[str, Any]) -> dict[str, Any]:
    """Translates all sentences in batches, and then short ones one by one; "seconds" are those of the batches.

    The measurement includes the conversion from and to text if outputs end naturally.
    """
    translate: Callable[[Any], Any] = engine.translate
    sources, short_sources, pieces = task["sources"], task["short_sources"], None
    if task["output_tokens"] is None:
        sources, short_sources, pieces = task["texts"], task["short_texts"], Pieces(task["vocabularies"])
        translate = engine.translate_texts or pieces.around(engine.translate)
    started = time.perf_counter()
    outputs = translate(sources)
    seconds = time.perf_counter() - started
    latencies = []
    for source in short_sources:
        started = time.perf_counter()
        translate([source])
        latencies.append(time.perf_counter() - started)
    return {"seconds": seconds, "latencies": latencies, "outputs": pieces.outputs(outputs) if pieces else outputs}


def main() -> None:
    """Runs one role of one engine."""
    name, task_path, weights_path, role = sys.argv[1:]
    with open(task_path) as file:
        task = json.load(file)
    with np.load(weights_path) as arrays:
        engine = ENGINES[name.removesuffix(WITH_MKL)](task, dict(arrays))
    about: dict[str, Any] = {"versions": engine.versions}
    if role == "proof":
        about["outputs"] = engine.translate(task["proof_sources"])
    if role in ("proof", "score"):
        about["log_probs"] = engine.score(task["proof_sources"], task["proof_targets"])
    serve(lambda: timed_turn(engine, task), about)


if __name__ == "__main__":
    main()
