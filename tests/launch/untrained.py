"""An extension of launch.train that starts a run and makes no updates."""

from t2t_keras.training.trainer import Outcome, Trainer


def _train(self: Trainer) -> Outcome:
    return Outcome(self.step, "was not trained", 0)


Trainer.train = _train  # type: ignore[method-assign]
