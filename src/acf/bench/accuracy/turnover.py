"""Turnover of blocks over a run: how dense the layers are on average, and how many regrown blocks are pruned again."""

from collections.abc import Sequence

from torch import Tensor, nn

from acf.nn import block_sparse_layers
from acf.train import LayerFigures


class BlockTurnover:
    """An ``on_move`` for `acf.attach` that compares the masks of block-sparse layers before and after an update."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = block_sparse_layers(model)
        self.dropped = self.dropped_again = 0
        self.moves = 0
        self._masks = self._present()
        self._regrown = {name: mask & ~mask for name, mask in self._masks.items()}
        self._density_steps = 0.0
        self._last_step = 0

    def __call__(self, step: int, figures: Sequence[LayerFigures]) -> None:
        """Compare the masks with those after the previous update."""
        self._density_steps += (step - self._last_step) * _density(self._masks)
        self._last_step = step
        masks = self._present()
        for name, mask in masks.items():
            before = self._masks[name]
            gone = before & ~mask
            self.dropped += int(gone.sum())
            self.dropped_again += int((gone & self._regrown[name]).sum())
            self._regrown[name] = mask & ~before
        self._masks = masks
        self.moves += 1

    def mean_density(self, total_steps: int) -> float:
        """Fraction of blocks present, averaged over the steps of the run, all layers together."""
        rest = (total_steps - self._last_step) * _density(self._masks)
        return (self._density_steps + rest) / total_steps

    @property
    def dropped_again_share(self) -> float | None:
        """Fraction of dropped blocks that the update just before had regrown; None if none was dropped."""
        return self.dropped_again / self.dropped if self.dropped else None

    def _present(self) -> dict[str, Tensor]:
        return {name: layer.mask() for name, layer in self.layers.items()}


def _density(masks: dict[str, Tensor]) -> float:
    return sum(int(mask.sum()) for mask in masks.values()) / sum(mask.numel() for mask in masks.values())
