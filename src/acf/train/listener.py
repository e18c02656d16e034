"""Hearing the operands of one layer's weight gradient on behalf of all who score by them."""

from collections.abc import Sequence

from torch import Tensor

from acf.nn import BlockSparseLayer
from acf.ops import observe_weight_grad, stop_observing
from acf.ops.observe import WeightGradObserver


class LayerListener:
    """Passes the operands of every weight gradient of ``layer`` on to ``observers``, until closed."""

    def __init__(self, layer: BlockSparseLayer, observers: Sequence[WeightGradObserver]) -> None:
        self.observers = observers
        self._block_rows = layer.block_rows
        observe_weight_grad(self._block_rows, self)

    def add(self, output_grad: Tensor, x: Tensor) -> None:
        """Pass one backward pass on."""
        for observer in self.observers:
            observer.add(output_grad, x)

    def close(self) -> None:
        """Stop listening."""
        stop_observing(self._block_rows)
