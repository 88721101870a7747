"""Training objectives: losses and their gradients as functions of the weights."""

from t2t_keras.config import TrainConfig
from t2t_keras.training.consistency import Consistency
from t2t_keras.training.objectives.objective import Likelihood, Objective
from t2t_keras.training.objectives.risk import Risk


def make_objective(config: TrainConfig) -> Objective:
    """Creates the objective that `config.objective` names."""
    if config.objective == "risk":
        return Risk(config.likelihood_weight, config.risk_samples, config.label_smoothing, config.seed)
    return Likelihood(config.label_smoothing, Consistency.of(config))
