"""Parameters on one GPU of a pipeline stage.

The fullest GPU decides: embeddings are on the first stage, the output head on the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.sizing import parameters
from rackready.design.sizing.parallel import Layout, stage_layers
from rackready.model.llm import Llm


@dataclass(frozen=True, slots=True)
class Stage:
    """Parameters of one GPU of one stage: linear layers, routed experts, and the rest (embedding, head, norm)."""

    name: str
    layers: int
    dense: float
    routed: float
    outside: float

    @property
    def parameters(self) -> float:
        """Return the sum."""
        return self.dense + self.routed + self.outside


def stages(model: Llm, layout: Layout) -> list[Stage]:
    """Return the stages that can be the fullest: first and last (one without a pipeline), each with its GPU's share.

    Layers and embeddings are split over tp GPUs, routed experts over tp x ep. Tied embeddings exist twice as soon as
    there is a pipeline: the first stage looks tokens up, the last one multiplies by the same matrix.
    """
    layers = stage_layers(model, layout)
    dense, routed = parameters.layer_average(model)
    matrix = parameters.embedding(model)
    positions, norm = model.learned_positions * model.hidden, model.hidden
    share = (layers * dense / layout.tp, layers * routed / (layout.tp * layout.ep))
    if layout.pp == 1:
        return [Stage("only", layers, *share, parameters.outside_layers(model) / layout.tp)]
    return [
        Stage("first", layers, *share, (matrix + positions) / layout.tp),
        Stage("last", layers, *share, (matrix + norm) / layout.tp),
    ]
