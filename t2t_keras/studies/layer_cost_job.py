"""The job of Table 1: one type of layers."""

import dataclasses
from typing import Any, ClassVar

from t2t_keras.studies.job import Job


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerCostJob(Job):
    """Measures one type of layers at several lengths.

    Attributes:
        layer_type: "self_attention", "recurrent", "convolutional" or "restricted".
        d_model: width of inputs and outputs.
        batch: sequences in a pass.
        lengths: n, in ascending order.
        fitted: how many of the longest lengths the exponents are fitted to.
        kernel_size: k.
        neighbours: r, how many positions restricted self-attention reaches, half of them on either side.
        path_tokens: length at which sequential operations and paths are counted.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.layer_costs:measure",)

    layer_type: str
    d_model: int = 64
    batch: int = 4
    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    fitted: int = 3
    kernel_size: int = 3
    neighbours: int = 16
    path_tokens: int = 64

    def settings(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "lengths": list(self.lengths), "needs": list(self.needs)}
