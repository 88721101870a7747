"""The denoising task: restoring text with masked spans, to pre-train models for other tasks without labels."""

from collections.abc import Iterable, Iterator

from t2t_keras.tasks.translation_task import TranslationTask
from t2t_keras.text.masking import masked_text
from t2t_keras.text.repair import repair

MASK = "<mask>"


class DenoisingTask(TranslationTask):
    """Restores text with masked spans (Lewis et al., 2020); files have one text per line.

    In validation and test sets, the masks are a function of the text. In training, they change with each epoch.
    """

    name = "denoising"
    data = {"target_language": "en", "max_length_ratio": 1e9}
    held_out_sides = (1,)
    is_parallel = False
    writes_source = True
    is_masked = True
    takes_tags = False

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        texts = (repair(line) for line in lines)
        return ((masked_text(text, MASK) if text else "", text) for text in texts)

    def symbols(self, references: Iterable[str]) -> list[str]:
        return [MASK]
