"""What the product's output of a step goes through: the passes of a CNN or those of a transformer."""

from collections.abc import Callable
from dataclasses import dataclass

from acf.errors import RtlError
from acf.rtl.device.step.channel_passes import ChannelPasses
from acf.rtl.device.step.channel_reference import channel_reference
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.passes import Passes
from acf.rtl.device.step.row_passes import RowPasses
from acf.rtl.device.step.row_reference import row_reference
from acf.rtl.device.step.vector_result import VectorResult


@dataclass(frozen=True)
class StepKind:
    """``passes`` make the descriptors, ``reference`` computes what they leave; ``forward`` and ``backward``: kinds of
    the simulator's vector work, in order.

    ``sums_rows``: sums go over rows of the output, whose tiles are then bf16, so that its product is output-stationary.
    """

    passes: type[Passes]
    reference: Callable[[Floats, StepState, StepSizes, list[list[int]], int], VectorResult]
    forward: tuple[str, ...]
    backward: tuple[str, ...]
    sums_rows: bool = False


STEP_KINDS: dict[str, StepKind] = {
    "cnn": StepKind(ChannelPasses, channel_reference, ("batch_norm", "relu", "add"), ("relu", "batch_norm")),
    "transformer": StepKind(
        RowPasses,
        row_reference,
        ("layer_norm", "gelu", "cross_entropy"),
        ("cross_entropy", "gelu", "layer_norm"),
        sums_rows=True,
    ),
}
"""By name."""


def kind_named(name: str) -> StepKind:
    """The kind of that name."""
    if name not in STEP_KINDS:
        raise RtlError(f"passes {name!r} are not one of {', '.join(STEP_KINDS)}; use one of these")
    return STEP_KINDS[name]
