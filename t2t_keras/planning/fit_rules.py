"""Chooses the settings of `launch.fit` from the amount of text and the work that a machine can do in the given time.

The unit of work is one update of the preset `tiny` (4 + 4 layers) with 8,000 vocabulary entries and batches of 2,048
tokens. `t2t_keras.fitting.speed` measures how many units a machine does per minute. docs/results.md lists the
training runs behind the rules for depth and vocabulary.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.errors import InputError

FEWEST_PAIRS = 200
FEWEST_UPDATES = 400  # after fewer updates, outputs hardly depend on the source
GIVEN = "given"  # the reason of a choice that the user made
NO_LIMIT = 1_000_000  # of the updates: so large that the time limit ends the training

UNIT_TOKENS, UNIT_VOCAB_SIZE = 2048, 8000  # of the unit of work
_TOKENS_OF_A_SIDE = 15  # of a typical sentence
_FILL = 0.9  # share of a batch that is not padding

# A shallower model makes more updates in a short time. On program messages, one layer per side scores 2.4 BLEU more
# than two after 600 units of work, and two layers score 1.9 BLEU more than four after 2,500 units. On image captions,
# four layers with 8,000 entries score 1.4 BLEU more than two layers with 4,000 entries after 4,760 units.
_WORK_FOR_TWO_LAYERS, _WORK_FOR_FOUR_LAYERS = 1_000, 3_500
# With more work than this, the preset's recipe (larger batches, longer warm-up) is better.
_WORK_FOR_THE_PRESET = 12_000
_PEAK_RATE = 0.0039  # of the short recipe: learning_rate_scale / sqrt(d_model * warmup_steps), with d_model 128
# After 8.4 passes through the text of the quickstart, a dropout of 0.1 gives a lower validation loss than none, and 2.7
# BLEU more on a project that training has not seen, but 1 BLEU less on messages of the training packages. After 5.7
# passes, training without dropout gives a lower loss.
_FEW_PASSES, _MANY_PASSES, _VERY_MANY_PASSES = 8, 30, 150
_FASTER_IN_BFLOAT16 = ("tiny", "base")  # as `benchmarks.train_step` measures it


@dataclasses.dataclass(frozen=True)
class Choice:
    """A chosen setting.

    Attributes:
        name: "preset", "held_out_pairs" (size of the validation set, and of the test set), "updates" (number that the
            time allows), or a setting as "section.field".
        value: the chosen value, which JSON can represent.
        reason: the reason, in one sentence.
    """

    name: str
    value: Any
    reason: str


def choose(
    pairs: int,
    minutes: float,
    updates_per_minute: float,
    *,
    has_accelerator: bool = False,
    has_tpu: bool = False,
    computes_in_bfloat16: bool = False,
    overrides: Sequence[Choice] = (),
) -> tuple[Choice, ...]:
    """Returns the settings for an amount of text and a training time.

    Args:
        pairs: number of usable sentence pairs.
        minutes: training time in minutes.
        updates_per_minute: speed of the machine, in units of work per minute.
        has_accelerator: whether there is a GPU or a TPU.
        has_tpu: whether the accelerator is a TPU.
        computes_in_bfloat16: whether the processor has instructions for products in bfloat16.
        overrides: choices of the user, which replace those of the rules. The number of updates is adapted to the user's
            number of layers and vocabulary size, and is at most the user's `train.max_steps`. Values may be strings,
            as flags hold them.

    Raises:
        InputError: there are fewer than `FEWEST_PAIRS` pairs.
    """
    if pairs < FEWEST_PAIRS:
        raise InputError(f"the training text has only {pairs:,} usable pairs; at least {FEWEST_PAIRS} are needed")
    values = {choice.name: choice.value for choice in overrides}
    max_steps = int(values.get("train.max_steps", NO_LIMIT))
    possible_work = minutes * updates_per_minute
    work = min(possible_work, max_steps)
    vocabulary = _vocabulary(pairs, work)
    choices = [vocabulary, _held_out_pairs(pairs)]
    rule = _preset(pairs, minutes, has_accelerator)
    preset = values.get(rule.name, rule.value)
    choices.append(rule)
    if preset == "tiny":
        recipe = _recipe(work, possible_work, max_steps, {vocabulary.name: vocabulary.value, **values})
    else:
        recipe = [limited_updates(possible_work, max_steps)]
    updates = next(choice.value for choice in recipe if choice.name == "updates")
    # In batches of UNIT_TOKENS, which only the short recipe has.
    batches = updates if len(recipe) > 1 else 2 * updates if preset == "tiny" else work
    passes = batches * UNIT_TOKENS * _FILL / (_TOKENS_OF_A_SIDE * pairs)
    choices += [*recipe, *([_dropout(passes)] if preset == "tiny" else [])]
    if computes_in_bfloat16 and not has_accelerator and preset in _FASTER_IN_BFLOAT16:
        choices.append(
            Choice("train.mixed_bfloat16", True, "this processor supports it, and makes more updates per minute")
        )
    if has_tpu:
        choices.append(Choice("train.static_shapes", True, "a TPU needs static shapes"))
    beam = Choice("decode.beam_size", 4, "the paper's value; wider beams gain little")
    choices += [*_validation(passes), *_saving(minutes), beam, *overrides]
    return tuple({choice.name: choice for choice in choices}.values())


def _vocabulary(pairs: int, work: float) -> Choice:
    sizes = ((5_000, 2000), (20_000, 4000), (300_000, 8000), (2_000_000, 16000))
    size = next((size for limit, size in sizes if pairs < limit), 37000)
    if size > 4000 and work < _WORK_FOR_FOUR_LAYERS:
        return Choice("data.vocab_size", 4000, "a smaller vocabulary allows more updates in a short time")
    return Choice("data.vocab_size", size, "each entry should occur often enough to be learned")


def _held_out_pairs(pairs: int) -> Choice:
    size = min(1000, max(50, pairs // 20))
    return Choice("held_out_pairs", size, "a twentieth of the pairs for each set, from 50 to 1,000")


def _preset(pairs: int, minutes: float, has_accelerator: bool) -> Choice:
    if has_accelerator and pairs >= 300_000 and minutes >= 120:
        return Choice("preset", "base", "the text, the accelerator and the time suffice for the paper's base model")
    return Choice("preset", "tiny", "a larger model needs an accelerator, hours of training and 300,000 pairs")


def _recipe(work: float, possible_work: float, max_steps: int, values: Mapping[str, Any]) -> list[Choice]:
    """Chooses the layers, the updates, the batch size, the learning rate and the moving average of `tiny`.

    Args:
        work: the work that the training is expected to do.
        possible_work: the work that the time allows.
        max_steps: the user's limit of the updates.
        values: the vocabulary size, and the user's values of other settings.
    """
    layers = 1 if work < _WORK_FOR_TWO_LAYERS else 2 if work < _WORK_FOR_FOUR_LAYERS else 4
    sides = [int(values.get(f"model.num_{side}_layers", layers)) for side in ("encoder", "decoder")]
    unit_batches = possible_work / cost(sum(sides) / 2, values["data.vocab_size"])
    if work >= _WORK_FOR_THE_PRESET:
        return [limited_updates(unit_batches / 2, max_steps)]  # the preset's batches are twice as large
    updates = limited_updates(unit_batches, max_steps)
    warmup_steps = min(500, max(100, updates.value // 4 // 10 * 10))
    scale = round(_PEAK_RATE * (128 * warmup_steps) ** 0.5, 2)
    depth = "fewer layers learn faster" if layers < 4 else "the time is enough for the preset's layers"
    return [
        Choice("model.num_encoder_layers", layers, depth),
        Choice("model.num_decoder_layers", layers, depth),
        updates,
        Choice("train.tokens_per_batch", UNIT_TOKENS, "in a short time, more updates are better than large batches"),
        Choice("train.warmup_steps", warmup_steps, "a quarter of the updates, at most 500"),
        Choice("train.learning_rate_scale", scale, f"the rate rises to {_PEAK_RATE}"),
        Choice(
            "train.ema_decay", 0.99, "a moving average of the weights is better than the weights of a single update"
        ),
    ]


def cost(layers: float, vocab_size: int) -> float:
    """Returns the cost of an update of `tiny` with `layers` per side and a vocabulary size, in units of work.

    Measured processor time with 1, 2 and 4 layers and with 2,000, 4,000 and 8,000 entries is within 4 % of this cost
    (AMD EPYC, Zen 4).
    """
    return 0.16 * layers + 0.045 * vocab_size / 1000


def limited_updates(updates: float, max_steps: int) -> Choice:
    """Returns the choice of the number of updates.

    Args:
        updates: the updates that the time allows.
        max_steps: the user's limit.
    """
    if max_steps <= updates:
        return Choice("updates", max_steps, "the given train.max_steps")
    return Choice("updates", max(round(updates), 1), "about as many as the time allows on this machine")


def _dropout(passes: float) -> Choice:
    if passes < _FEW_PASSES:
        return Choice("model.dropout_rate", 0.0, "the model sees each pair too rarely to memorise it")
    if passes < _MANY_PASSES:
        return Choice("model.dropout_rate", 0.1, "the model sees each pair several times and memorises little")
    if passes < _VERY_MANY_PASSES:
        return Choice("model.dropout_rate", 0.3, "the model sees each pair dozens of times and would memorise it")
    return Choice("model.dropout_rate", 0.4, "the model sees each pair hundreds of times and would memorise it")


def _validation(passes: float) -> list[Choice]:
    if passes < _MANY_PASSES:
        return [
            Choice("train.validation_sentences", 0, "as long as the loss falls, the score rises too"),
            Choice("train.best_metric", "loss", "the loss is less noisy than a score of a few sentences"),
            Choice("train.patience", 0, "the time ends before the model stops improving"),
        ]
    return [
        Choice("train.validation_sentences", 200, "the score of 200 translations is measured in seconds"),
        Choice("train.best_metric", "bleu", "after many passes translations improve while the loss rises"),
        Choice("train.patience", 10, "after ten validations without improvement, none is likely to follow"),
    ]


def _saving(minutes: float) -> list[Choice]:
    interval = round(min(10.0, max(0.5, minutes / 20)), 2)
    count = max(1, round(minutes / interval))
    return [
        Choice("train.checkpoint_minutes", interval, f"{count} checkpoints in total, each of which is validated"),
        Choice("train.keep_checkpoints", 10, "an average of checkpoints is often better than the best of them"),
        Choice("train.log_steps", 50, "a line of progress every few seconds"),
    ]
