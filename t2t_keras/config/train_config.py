"""Settings of training."""

import dataclasses
from typing import Annotated, Literal

from t2t_keras.errors import InputError
from t2t_keras.values import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    Seed,
    at_least,
    check_fields,
)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of training (section 5 of the paper); the defaults are the paper's base recipe.

    Attributes:
        tokens_per_batch: token budget of a global batch: rows times the longer padded side stay within it.
        corpus_weights: how often a pair of each corpus of the training text occurs per epoch; empty means once.
        max_steps: number of optimizer updates.
        max_minutes: stop after this many minutes of training in this process; 0 means no limit.
        seed: random seed of initial weights, batches and dropout.
        schedule: learning rate schedule: "paper" (section 5.3), or "constant", which stays at learning_rate_scale after
            the warmup.
        learning_rate_scale: factor on the schedule of section 5.3 (T2T uses 2); with "constant", the rate itself.
        warmup_steps: updates during which the learning rate rises linearly (section 5.3).
        hold_steps: updates for which the "paper" schedule then stays at its peak before it decays; 0 in section 5.3.
        decay_steps: updates over which the rate finally decays linearly to zero; 0 in section 5.3. They end at
            max_steps, or at the step at which max_minutes are expected to run out.
        adam_beta1: decay of the first moment.
        adam_beta2: decay of the second moment.
        adam_epsilon: added to the square root of the second moment.
        label_smoothing: weight of the uniform distribution in the target distribution (section 5.4).
        objective: "likelihood" of the references, or "risk", which adds the expected cost, 1 - GLEU, of sampled
            outputs.
        likelihood_weight: weight of the loss of the references in "risk", to which the sentences' costs are added.
        risk_samples: outputs sampled per sentence in "risk", at least 2.
        consistency: a second prediction of each target, which must agree with the first: with different dropout
            ("rdrop"), with different dropout and token cutoff ("simcut"), or "none".
        consistency_weight: factor alpha on the divergence between the two predictions.
        cutoff_rate: share of the tokens that "simcut" cuts off in the second pass, on both sides.
        frozen: patterns of the names of weights that are not trained, such as "encoder/*"; * matches any characters.
        clip_norm: largest global gradient norm, after the sum over replicas; 0 means no clipping.
        accumulation_steps: number of parts in which each replica processes its share of a batch; the result differs
            only in random draws.
        steps_per_call: maximum number of training steps between two returns to Python.
        mixed_bfloat16: whether to compute in bfloat16, with weights, loss and optimizer state in float32.
        deterministic: whether training is reproducible bit for bit on a GPU too, at lower speed; on a CPU it always is.
        jit_compile: whether to compile the forward and backward passes with XLA; needs static_shapes.
        static_shapes: whether to pad batches to a fixed set of shapes, as XLA and TPUs need.
        ema_decay: decay of an exponential moving average of the weights, saved along with them; 0 means none.
        log_steps: steps between two log entries.
        checkpoint_steps: steps between two checkpoints.
        checkpoint_minutes: minutes between two checkpoints; if positive, replaces checkpoint_steps.
        checkpoint_epochs: epochs between two checkpoints; if positive, determines checkpoint_steps.
        keep_checkpoints: how many of the newest checkpoints are kept on disk, besides the best one.
        validation_steps: steps between two validations, each of which also saves a checkpoint; 0 means that every
            checkpoint is validated.
        validation_sentences: number of validation sentences decoded for the task's score, such as BLEU; 0 means none.
        best_metric: metric that selects the best checkpoint: "loss", or the task's score, such as "bleu", which needs
            validation_sentences.
        patience: validations without an improvement before training stops; 0 means no early stopping.
    """

    tokens_per_batch: PositiveInt = 25000
    corpus_weights: tuple[PositiveFloat, ...] = ()
    max_steps: PositiveInt = 100000
    max_minutes: NonNegativeFloat = 0.0
    seed: Seed = 1
    schedule: Literal["paper", "constant"] = "paper"
    learning_rate_scale: PositiveFloat = 1.0
    warmup_steps: PositiveInt = 4000
    hold_steps: NonNegativeInt = 0
    decay_steps: NonNegativeInt = 0
    adam_beta1: Rate = 0.9
    adam_beta2: Rate = 0.98
    adam_epsilon: PositiveFloat = 1e-9
    label_smoothing: Rate = 0.1
    objective: Literal["likelihood", "risk"] = "likelihood"
    likelihood_weight: NonNegativeFloat = 0.017
    risk_samples: Annotated[int, at_least(2)] = 5
    consistency: Literal["none", "simcut", "rdrop"] = "none"
    consistency_weight: PositiveFloat = 3.0
    cutoff_rate: Rate = 0.05
    frozen: tuple[str, ...] = ()
    clip_norm: NonNegativeFloat = 0.0
    accumulation_steps: PositiveInt = 1
    steps_per_call: PositiveInt = 10
    mixed_bfloat16: bool = False
    deterministic: bool = False
    jit_compile: bool = False
    static_shapes: bool = False
    ema_decay: Rate = 0.0
    log_steps: PositiveInt = 100
    checkpoint_steps: PositiveInt = 1000
    checkpoint_minutes: NonNegativeFloat = 0.0
    checkpoint_epochs: NonNegativeFloat = 0.0
    keep_checkpoints: PositiveInt = 5
    validation_steps: NonNegativeInt = 0
    validation_sentences: NonNegativeInt = 0
    best_metric: str = "loss"
    patience: NonNegativeInt = 0

    def __post_init__(self) -> None:
        check_fields(self, "train.{}")
        if self.checkpoint_epochs and self.checkpoint_minutes:
            raise InputError(
                f"train.checkpoint_epochs={self.checkpoint_epochs} cannot be combined with "
                f"train.checkpoint_minutes={self.checkpoint_minutes}"
            )
        if self.hold_steps and self.schedule != "paper":
            raise InputError(f"train.hold_steps={self.hold_steps} needs train.schedule=paper")
        if self.best_metric != "loss" and not self.validation_sentences:
            raise InputError(f"train.best_metric={self.best_metric} needs train.validation_sentences above 0")
        self._check_objective()

    @property
    def passes(self) -> float:
        """Forward and backward passes over each pair per update; drawing an output counts as a third of a pass."""
        if self.objective == "likelihood":
            return 1.0 if self.consistency == "none" else 2.0
        return (self.likelihood_weight > 0) + self.risk_samples * (1 + 1 / 3)

    def _check_objective(self) -> None:
        """Checks that the other settings are compatible with the objective and with each other."""
        is_risk, is_consistent = self.objective == "risk", self.consistency != "none"
        self._check_used(("likelihood_weight", "risk_samples"), is_risk, "train.objective=risk")
        self._check_used(("consistency_weight",), is_consistent, "train.consistency=simcut or rdrop")
        self._check_used(("cutoff_rate",), self.consistency == "simcut", "train.consistency=simcut")
        if not is_risk:
            return
        if is_consistent:
            raise InputError(f"train.consistency={self.consistency} needs train.objective=likelihood")
        for name in ("static_shapes", "jit_compile"):
            if getattr(self, name):
                raise InputError(
                    f"train.{name}=true cannot be combined with train.objective=risk: no shape is known before "
                    "the outputs are drawn"
                )

    def _check_used(self, names: tuple[str, ...], is_used: bool, setting: str) -> None:
        """Checks that settings that are not used have their default values; `setting` is a setting that uses them."""
        for field in dataclasses.fields(self):
            if field.name in names and not is_used and getattr(self, field.name) != field.default:
                raise InputError(f"train.{field.name}={getattr(self, field.name)} needs {setting}")
