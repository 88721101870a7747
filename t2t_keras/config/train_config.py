"""The settings of a training."""

import dataclasses
from typing import ClassVar, Literal

from t2t_keras.config.checks import check_not_negative, check_positive, check_rate, check_seed, check_types
from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Training (section 5 of the paper); the defaults are the paper's base recipe.

    Attributes:
        tokens_per_batch: budget of a global batch: rows times the longer padded side stays within it.
        corpus_weights: how often a pair of each corpus of the training text occurs in an epoch; empty: once.
        max_steps: optimizer updates.
        max_minutes: stop after this many minutes of training in this process; 0 means no limit.
        seed: random seed of initial weights, batches and dropout.
        schedule: "paper" is that of 5.3; "constant" stays at learning_rate_scale after warmup_steps.
        learning_rate_scale: factor on the schedule of 5.3 (T2T uses 2); the rate itself if it is constant.
        warmup_steps: steps in which the learning rate rises linearly (5.3).
        hold_steps: steps for which the rate of "paper" then stays before it falls; 0 in 5.3.
        decay_steps: steps at the end in which the rate falls linearly to zero; 0 in 5.3. The end is max_steps, or
            the step at which max_minutes are expected to be over.
        adam_beta1: decay of the first moment.
        adam_beta2: decay of the second moment.
        adam_epsilon: added to the root of the second moment.
        label_smoothing: weight of the uniform distribution in the target (5.4).
        objective: "likelihood" of the references, or "risk": the expected cost, 1 - GLEU, of sampled outputs as well.
        likelihood_weight: of risk: factor on the loss of the references, beside the sum of the sentences' costs.
        risk_samples: of risk: outputs drawn for each sentence, at least 2.
        frozen: names of weights that stay as they are, such as "encoder/*"; * stands for any characters.
        clip_norm: largest global gradient norm, after the sum over replicas; 0 means no clipping.
        accumulation_steps: parts in which each replica computes its share of a batch; only random draws differ.
        steps_per_call: training steps between two returns to Python.
        mixed_bfloat16: compute in bfloat16, keep weights, loss and optimizer in float32.
        deterministic: compute the same bits each time on a GPU too, more slowly; a CPU always does.
        jit_compile: compile forward and backward with XLA; needs static_shapes.
        static_shapes: pad batches to a fixed set of shapes (needed by XLA and TPUs).
        ema_decay: decay of a moving average of the weights that is saved beside them; 0 means none.
        log_steps: steps between two lines of metrics.
        checkpoint_steps: steps between two checkpoints.
        checkpoint_minutes: minutes between two checkpoints; when positive, replaces checkpoint_steps.
        keep_checkpoints: how many of the newest checkpoints stay on disk.
        validation_steps: steps between two validations, each of which saves a checkpoint too; 0 means at each one.
        validation_sentences: how many validation sentences are decoded for the task's score (BLEU); 0 means none.
        best_metric: what decides on the best checkpoint: "loss", or the task's score, such as "bleu", which needs
            validation_sentences.
        patience: validations without an improvement before training stops; 0 means never.
    """

    section: ClassVar[str] = "train"

    tokens_per_batch: int = 25000
    corpus_weights: tuple[float, ...] = ()
    max_steps: int = 100000
    max_minutes: float = 0.0
    seed: int = 1
    schedule: Literal["paper", "constant"] = "paper"
    learning_rate_scale: float = 1.0
    warmup_steps: int = 4000
    hold_steps: int = 0
    decay_steps: int = 0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    label_smoothing: float = 0.1
    objective: Literal["likelihood", "risk"] = "likelihood"
    likelihood_weight: float = 0.017
    risk_samples: int = 5
    frozen: tuple[str, ...] = ()
    clip_norm: float = 0.0
    accumulation_steps: int = 1
    steps_per_call: int = 10
    mixed_bfloat16: bool = False
    deterministic: bool = False
    jit_compile: bool = False
    static_shapes: bool = False
    ema_decay: float = 0.0
    log_steps: int = 100
    checkpoint_steps: int = 1000
    checkpoint_minutes: float = 0.0
    keep_checkpoints: int = 5
    validation_steps: int = 0
    validation_sentences: int = 0
    best_metric: str = "loss"
    patience: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(
            self,
            *("tokens_per_batch", "max_steps", "learning_rate_scale", "warmup_steps", "adam_epsilon"),
            *("accumulation_steps", "steps_per_call", "log_steps", "checkpoint_steps", "keep_checkpoints"),
        )
        check_rate(self, "adam_beta1", "adam_beta2", "label_smoothing", "ema_decay")
        check_seed(self)
        check_not_negative(self, "max_minutes", "clip_norm", "checkpoint_minutes", "patience", "likelihood_weight")
        check_not_negative(self, "hold_steps", "decay_steps", "validation_steps", "validation_sentences")
        for weight in self.corpus_weights:
            if weight <= 0:
                raise InputError(f"train.corpus_weights must be positive, got {weight}")
        if self.hold_steps and self.schedule != "paper":
            raise InputError(f"train.hold_steps={self.hold_steps} needs train.schedule=paper")
        if self.best_metric != "loss" and not self.validation_sentences:
            raise InputError(f"train.best_metric={self.best_metric} needs train.validation_sentences above 0")
        self._check_objective()

    @property
    def passes(self) -> float:
        """Forward and backward passes over each pair in an update; drawing an output takes a third of another one."""
        if self.objective == "likelihood":
            return 1.0
        return (self.likelihood_weight > 0) + self.risk_samples * (1 + 1 / 3)

    def _check_objective(self) -> None:
        """Refuses settings that do not go together with the objective."""
        if self.objective == "risk":
            if self.risk_samples < 2:
                raise InputError(f"train.risk_samples must be at least 2, got {self.risk_samples}")
            for name in ("static_shapes", "jit_compile"):
                if getattr(self, name):
                    raise InputError(
                        f"train.{name}=true does not go together with train.objective=risk: no shape is known before "
                        "the outputs are drawn"
                    )
            return
        for field in dataclasses.fields(self):
            if field.name in ("likelihood_weight", "risk_samples") and getattr(self, field.name) != field.default:
                raise InputError(f"train.{field.name}={getattr(self, field.name)} needs train.objective=risk")
