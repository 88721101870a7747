"""What `launch.fit` chooses for some pairs of sentences and some minutes of training, and why."""

import dataclasses
from typing import Any

from t2t_keras.errors import InputError

FEWEST_PAIRS = 200

# Pairs of some 15 tokens a side that two cores train on in a minute with the preset `tiny`: enough to tell a short
# training from one that sees every pair a hundred times, on any machine.
_PAIRS_A_MINUTE = 36_000

# On Multi30k this recipe in bfloat16 had a lower validation loss than the preset's in float32 until 49 minutes of
# processor, half an hour of two cores, where scores were the same (docs/what_to_expect.md). Not measured: the preset's
# recipe in bfloat16, in which its larger batches are faster.
_SHORT_MINUTES = 45.0
_MANY_PASSES, _VERY_MANY_PASSES = 30, 150
_FASTER_IN_BFLOAT16 = ("tiny", "base")  # as `benchmarks.train_step` measures it


@dataclasses.dataclass(frozen=True)
class Choice:
    """Something that was chosen.

    Attributes:
        name: "preset", "held_out_pairs" (of validation and of test, each), or a setting, "section.field".
        value: what was chosen; a value of JSON.
        reason: why, in a sentence.
    """

    name: str
    value: Any
    reason: str


GIVEN = "given"  # the reason of what was not chosen by a rule


def choose(
    pairs: int,
    minutes: float,
    *,
    has_accelerator: bool = False,
    has_tpu: bool = False,
    computes_in_bfloat16: bool = False,
    preset: str | None = None,
) -> tuple[Choice, ...]:
    """The choices for so many pairs of text, and minutes of training; an InputError if there are too few pairs.

    `has_accelerator`: there is a GPU or a TPU. `has_tpu`: it is a TPU. `computes_in_bfloat16`: the processor has
    instructions for it. No `preset` chooses one.
    """
    if pairs < FEWEST_PAIRS:
        raise InputError(f"the text has {pairs:,} pairs that can be used; at least {FEWEST_PAIRS} are needed")
    passes = minutes * _PAIRS_A_MINUTE / pairs
    chosen = [_vocabulary(pairs), _held_out(pairs)]
    if preset is None:
        chosen.append(_preset(pairs, minutes, has_accelerator))
        preset = chosen[-1].value
    if preset == "tiny":
        chosen += [_dropout(passes), *_recipe(minutes)]
    if computes_in_bfloat16 and not has_accelerator and preset in _FASTER_IN_BFLOAT16:
        chosen.append(
            Choice("train.mixed_bfloat16", True, "this processor computes in it, and makes more updates a minute")
        )
    if has_tpu:
        chosen.append(Choice("train.static_shapes", True, "a TPU needs shapes that are known beforehand"))
    beam = Choice("decode.beam_size", 4, "the paper's; wider beams gain little")
    return (*chosen, *_validation(passes), *_saving(minutes), beam)


def _vocabulary(pairs: int) -> Choice:
    sizes = ((5_000, 2000), (20_000, 4000), (300_000, 8000), (2_000_000, 16000))
    size = next((size for most, size in sizes if pairs < most), 37000)
    return Choice("data.vocab_size", size, "each entry should occur often enough to be learned")


def _held_out(pairs: int) -> Choice:
    size = min(1000, max(50, pairs // 20))
    return Choice("held_out_pairs", size, "a twentieth each for validation and for the test, from 50 to 1,000")


def _preset(pairs: int, minutes: float, has_accelerator: bool) -> Choice:
    if has_accelerator and pairs >= 300_000 and minutes >= 120:
        return Choice("preset", "base", "much text, an accelerator and hours are enough for the paper's base model")
    return Choice("preset", "tiny", "a larger model needs an accelerator, hours and 300,000 pairs to become better")


def _dropout(passes: float) -> Choice:
    if passes < _MANY_PASSES:
        return Choice("model.dropout_rate", 0.1, "each pair is seen a few times, so little can be learned by heart")
    if passes < _VERY_MANY_PASSES:
        return Choice("model.dropout_rate", 0.3, "each pair is seen dozens of times, and dropout keeps them apart")
    return Choice("model.dropout_rate", 0.4, "each pair is seen hundreds of times and would be learned by heart")


def _recipe(minutes: float) -> list[Choice]:
    """The batch, the learning rate and the moving average, which the preset has for an hour."""
    if minutes > _SHORT_MINUTES:
        return []
    return [
        Choice("train.tokens_per_batch", 2048, "in a short time, more updates with less text each get further"),
        Choice("train.warmup_steps", 500, "the rate must have risen long before the time is over"),
        Choice("train.learning_rate_scale", 1.0, "the shorter warm-up would otherwise end at too high a rate"),
        Choice("train.ema_decay", 0.99, "a moving average of the weights is better than those of any one update"),
    ]


def _validation(passes: float) -> list[Choice]:
    if passes < _MANY_PASSES:
        return [
            Choice("train.validation_sentences", 0, "as long as the loss falls, the score rises too"),
            Choice("train.best_metric", "loss", "it is steadier than a score of a few sentences"),
            Choice("train.patience", 0, "the time is over before a model stops to improve"),
        ]
    return [
        Choice("train.validation_sentences", 200, "so many translations show the score, in seconds"),
        Choice("train.best_metric", "bleu", "after many passes translations improve while the loss rises"),
        Choice("train.patience", 10, "what has not improved in ten validations will not"),
    ]


def _saving(minutes: float) -> list[Choice]:
    interval = round(min(10.0, max(0.5, minutes / 20)), 2)
    count = max(1, round(minutes / interval))
    return [
        Choice("train.checkpoint_minutes", interval, f"{count} checkpoints in all, each is validated"),
        Choice("train.keep_checkpoints", 10, "their average is often better than the best of them"),
        Choice("train.log_steps", 50, "a line of progress every few seconds"),
        Choice("train.max_steps", 1_000_000, "the minutes end the training"),
    ]
