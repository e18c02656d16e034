"""One training step of a block-sparse layer as three products: forward, input gradient, weight gradient."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from acf.masks import BlockDST
from acf.nn import BlockSparseLinear, BlockSparsity, sparsify_
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.fabric.encoding import Bits
from acf.rtl.verify.lockstep.products import Product
from acf.train import attach


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """Operands of a step after blocks moved, bf16 bits: ``x [tokens, in]``, ``weight [out, in]``, ``gradient``.

    ``kept``: bool ``[out, in]``, the blocks that are present. ``moved_blocks``: those the last update brought in.
    """

    x: Bits
    weight: Bits
    gradient: Bits
    kept: NDArray[np.bool_]
    moved_blocks: int

    @property
    def products(self) -> dict[str, Product]:
        """The three products by phase; of the weight gradient only the blocks that are present are needed."""
        return {
            "forward": Product(self.x, np.ascontiguousarray(self.weight.T)),
            "input_grad": Product(self.gradient, self.weight),
            "weight_grad": Product(np.ascontiguousarray(self.gradient.T), self.x, self.kept),
        }

    def references(self) -> dict[str, NDArray[np.float64]]:
        """The same products in float64; what is not needed is zero."""
        x, weight, gradient = (bf16_values(bits).astype(np.float64) for bits in (self.x, self.weight, self.gradient))
        return {
            "forward": x @ weight.T,
            "input_grad": gradient @ weight,
            "weight_grad": (gradient.T @ x) * self.kept,
        }


def training_step(
    tokens: int, inputs: int, outputs: int, block: int, sparsity: float = 0.75, seed: int = 0
) -> TrainingStep:
    """Train a layer until Algorithm 1 has moved blocks, then take the operands of the next step.

    The input went through a ReLU, so about half of it is zero.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(inputs, outputs, bias=False))
    sparsify_(model, BlockSparsity(sparsity=sparsity, block=block, rescale=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = attach(model, optimizer, BlockDST(total_steps=100, every=2, fraction=0.5))
    target = torch.randn(tokens, outputs, generator=generator)
    before = _kept(model)
    for _ in range(2):
        x = torch.relu(torch.randn(tokens, inputs, generator=generator))
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.mse_loss(model(x), target))
        optimizer.step()
    topology.detach()
    after = _kept(model)
    x = torch.relu(torch.randn(tokens, inputs, generator=generator))
    output = model(x)
    (gradient,) = torch.autograd.grad(torch.nn.functional.mse_loss(output, target), output)
    weight = _layer(model).weight_matrix().detach().numpy()
    return TrainingStep(
        bf16_bits(x.numpy()),
        bf16_bits(weight),
        bf16_bits(gradient.numpy()),
        after,
        int((after & ~before).sum()) // block**2,
    )


def _layer(model: torch.nn.Sequential) -> BlockSparseLinear:
    layer = model[0]
    assert isinstance(layer, BlockSparseLinear)
    return layer


def _kept(model: torch.nn.Sequential) -> NDArray[np.bool_]:
    """Where the layer has blocks, bool ``[out, in]``."""
    layer = _layer(model)
    blocks: NDArray[np.bool_] = layer.mask().numpy().astype(bool)
    return np.asarray(np.kron(blocks, np.ones(layer.block_shape, dtype=bool)))
