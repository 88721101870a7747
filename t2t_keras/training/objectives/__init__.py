"""What a training minimises: the losses of a model that computes with given weights."""

from t2t_keras.config import TrainConfig
from t2t_keras.training.objectives.objective import Likelihood, Objective
from t2t_keras.training.objectives.risk import Risk


def make_objective(config: TrainConfig) -> Objective:
    """The objective that the settings name."""
    if config.objective == "risk":
        return Risk(config.likelihood_weight, config.risk_samples, config.label_smoothing, config.seed)
    return Likelihood(config.label_smoothing)
