"""What becomes of moved blocks: how dense the layers are over a run, and how many regrown blocks are dropped again."""

from collections.abc import Sequence

from torch import Tensor, nn

from acf.nn import block_sparse_layers
from acf.train import LayerFigures


class BlockFates:
    """An ``on_move`` for `acf.attach` that follows the masks of every block-sparse layer of ``model``."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = block_sparse_layers(model)
        self.weights = {name: layer.layout.block_count for name, layer in self.layers.items()}
        self.dropped = self.dropped_again = 0
        self.moves = 0
        self._masks = self._present()
        self._young = {name: mask & ~mask for name, mask in self._masks.items()}
        self._density_steps = 0.0
        self._last_step = 0

    def __call__(self, step: int, figures: Sequence[LayerFigures]) -> None:
        """Compare the masks with those of the move before."""
        self._density_steps += (step - self._last_step) * _density(self._masks)
        self._last_step = step
        masks = self._present()
        for name, mask in masks.items():
            before = self._masks[name]
            gone = before & ~mask
            self.dropped += int(gone.sum())
            self.dropped_again += int((gone & self._young[name]).sum())
            self._young[name] = mask & ~before
        self._masks = masks
        self.moves += 1

    def mean_density(self, total_steps: int) -> float:
        """Share of blocks present, over all layers and the steps of the run."""
        rest = (total_steps - self._last_step) * _density(self._masks)
        return (self._density_steps + rest) / total_steps

    @property
    def dropped_again_share(self) -> float | None:
        """Of all blocks dropped, those that had come at the move just before; None if none was dropped."""
        return self.dropped_again / self.dropped if self.dropped else None

    def _present(self) -> dict[str, Tensor]:
        return {name: layer.mask() for name, layer in self.layers.items()}


def _density(masks: dict[str, Tensor]) -> float:
    return sum(int(mask.sum()) for mask in masks.values()) / sum(mask.numel() for mask in masks.values())
