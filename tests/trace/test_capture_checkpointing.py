"""Activation checkpointing runs layers twice; a trace has them once."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import acf


class Attention(nn.Module):
    """A block with layers, attention and a product of activations, and a layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out, self.again = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).unflatten(-1, (3, 16)).unbind(-2)
        mixed = self.out(F.scaled_dot_product_attention(query, key, value))
        mixed = mixed @ mixed.transpose(-2, -1) @ value
        return x + self.again(torch.relu(self.again(mixed)))


class Model(nn.Module):
    """Two blocks, each a checkpoint: of the module, or of a function that its parent calls."""

    def __init__(self, reentrant: bool | None, of_module: bool) -> None:
        super().__init__()
        self.reentrant, self.of_module = reentrant, of_module
        self.first = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            segment = block if self.of_module else lambda x, block=block: torch.relu(block(x) @ x.mT @ x)
            x = segment(x) if self.reentrant is None else checkpoint(segment, x, use_reentrant=self.reentrant)
        return x


def captured(reentrant: bool | None, of_module: bool, sparse: bool) -> tuple[acf.Trace, nn.Module]:
    torch.manual_seed(0)
    model = Model(reentrant, of_module)
    if sparse:
        acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    x = torch.relu(torch.randn(2, 4, 16))
    with acf.capture(model) as trace:
        model(x).square().mean().backward()
    return trace, model


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("of_module", [True, False], ids=["a module", "a function"])
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_a_checkpointed_step_is_recorded_as_if_it_were_none(reentrant, of_module, sparse):
    plain, _ = captured(None, of_module, sparse)
    trace, model = captured(reentrant, of_module, sparse)
    assert {(op.name, op.phase): op for op in trace.ops} == {(op.name, op.phase): op for op in plain.ops}
    assert len(trace.ops) == len(plain.ops)
    assert trace.tensors.keys() == plain.tensors.keys()
    for key, bits in plain.tensors.items():
        assert np.array_equal(bits.packed, trace.tensors[key].packed), key
    assert model.first.weight.grad.any()
