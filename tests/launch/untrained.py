"""An extension of launch.train that begins a run, with its settings, and makes no update."""

from t2t_keras.training.trainer import Outcome, Trainer


def _train(self: Trainer) -> Outcome:
    return Outcome(self.step, "was not trained", 0)


Trainer.train = _train  # type: ignore[method-assign]
