"""Weight averages of models whose blocks move: torch's ``AveragedModel``, made to follow the topology.

``AveragedModel`` averages parameters slot by slot. Where a slot holds another block than before, that mixes one block
into the place of another, and with ``use_buffers`` the coordinates themselves are averaged. Importing this module makes
every ``AveragedModel`` of a block-sparse model a `SlotAveragedModel`, through torch's hook for module registration.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim.swa_utils import AveragedModel

from acf.errors import TopologyError
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.summary import block_sparse_layers
from acf.sparse import is_sharded


class SlotAveragedModel(AveragedModel):
    """An ``AveragedModel`` that has the topology of the model it averages.

    A block that was present at the last update goes on with its average; a new block starts with its weight. Buffers
    are copied as they are, unless ``use_buffers`` averages them, which never concerns the topology.
    """

    def update_parameters(self, model: nn.Module) -> None:
        """Take the topology of ``model`` over, then average; call it after the optimizer's step."""
        pairs = self._layer_pairs(model)
        for average, layer in pairs:
            _follow(average, layer)
        super().update_parameters(model)
        for average, layer in pairs:
            average.copy_topology(layer)

    def _layer_pairs(self, model: nn.Module) -> list[tuple[BlockSparseLayer, BlockSparseLayer]]:
        averages, layers = (list(block_sparse_layers(each).values()) for each in (self.module, model))
        if [each.layout for each in averages] != [each.layout for each in layers]:
            raise TopologyError(
                f"the average has {len(averages)} block-sparse layers and the model {len(layers)}, or of other shapes; "
                "update it with the model it was made from, and make it after sparsify_"
            )
        sharded = next((layer for layer in layers if is_sharded(layer.weight)), None)
        if sharded is not None:
            raise TopologyError(
                f"the weight of a {type(sharded).__name__} is sharded over processes, and averages are of whole "
                "weights; average a model that is not sharded"
            )
        return list(zip(averages, layers, strict=True))


@torch.no_grad()
def _follow(average: BlockSparseLayer, layer: BlockSparseLayer) -> None:
    """Give ``average`` the blocks of ``layer``: old averages where a block was there, its weight where it is new."""
    device, cols = average.weight.device, average.layout.grid_cols
    old = average.block_rows.long() * cols + average.block_cols.long()
    new = (layer.block_rows.long() * cols + layer.block_cols.long()).to(device)
    slot_of = torch.full((average.layout.block_count,), -1, device=device)
    slot_of[old] = torch.arange(old.numel(), device=device)
    old_slots = slot_of[new]
    known = (old_slots >= 0).reshape(-1, 1, 1)
    weight = torch.where(known, average.weight[old_slots.clamp(min=0)], layer.weight.to(average.weight))
    average.replace_blocks(weight, layer.topology)


def _follow_topology(parent: nn.Module, name: str, child: nn.Module | None) -> Any:
    """The registration hook: make an ``AveragedModel`` that gets a block-sparse model follow its topology."""
    if not isinstance(parent, AveragedModel) or isinstance(parent, SlotAveragedModel) or child is None:
        return
    if not block_sparse_layers(child):
        return
    if type(parent) is not AveragedModel:
        raise TopologyError(
            f"{type(parent).__name__} averages slot by slot, and a slot may hold another block after a move; derive it "
            "from acf.nn.SlotAveragedModel, or use acf.ema"
        )
    parent.__class__ = SlotAveragedModel


register_module_module_registration_hook(_follow_topology)
