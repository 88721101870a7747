"""Says once that a long search could take less time."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_keras.search.batches import Progress

from . import program

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

_SECONDS = 60.0


class SlowNotice:
    """Watches the progress of a program that translates with the engine `tensorflow`.

    After a minute on a CPU, by `clock`, which gives seconds, it says on standard error that there is a faster engine,
    unless that cannot do what the settings ask for. The time counts from when the notice is made.
    """

    def __init__(self, translator: "Translator", engine: str, clock: Callable[[], float] = time.monotonic) -> None:
        import tensorflow as tf

        from t2t_keras.inference.ctranslate2_engine import refusal

        self._clock, self._begun = clock, clock()
        form = translator.task.form(translator.tokenizer)
        self._due = (
            engine == "tensorflow"
            and translator.glossary is None
            and not tf.config.list_physical_devices("GPU")
            and not refusal(translator.model, translator.config, translator.excluded, form)
        )

    def before(self, update: Progress) -> Progress:
        """What is called after each batch: the notice, if it is due, then `update`."""

        def noticed(done: int, total: int) -> None:
            if self._due and self._clock() - self._begun > _SECONDS:
                self._due = False
                program.warn("note: --engine=ctranslate2 takes less time (pip install '.[fast]')")
            update(done, total)

        return noticed
