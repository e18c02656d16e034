"""Block sparsity as a user asks `acf.sparsify_` for it."""

from dataclasses import dataclass

from acf.errors import SparsityError
from acf.masks import DISTRIBUTIONS, check_topology

INITS = ("sparse", "dense")


@dataclass(frozen=True)
class BlockSparsity:
    """Keep a fraction ``1 - sparsity`` of the weight blocks of a model; by default those of greatest l2 norm.

    ``block`` is the side of a square block, or ``(height, width)`` in (outputs, inputs). ``distribution`` sets
    the density of each layer: "uniform" gives all the same, "erk" (Erdos-Renyi-kernel) keeps thin layers denser,
    "balanced" is uniform with the same number of blocks in every block row, within one, now and after every move.
    ``init="sparse"`` drops the blocks at once; ``init="dense"`` keeps them until the policy of `acf.attach` prunes.
    ``rescale=True`` multiplies the blocks of each layer that stay, so that the sum of its squared weights, and with it
    the variance of its outputs, is that of the dense layer: at a sparsity of 0.9 an output sums a tenth of the terms,
    and signals shrink by sqrt(0.1) in every layer without a normalisation. ``False`` keeps the values, as trained
    weights need it. By default (``None``) the weights are rescaled if the model is freshly initialised, which the
    spectra of its weights tell (`acf.nn.freshness`), and the summary says by how much. With ``init="dense"`` nothing
    is rescaled, because nothing is dropped.
    ``topology`` says where the blocks lie at the start: "norm" keeps those of greatest l2 norm (in a fresh model a
    random graph), "spread" gives all block rows and all block columns the same number, within one (constant fan-in and
    fan-out), "butterfly" takes the block diagonal and a block butterfly, "diagonal" whole wrapped block diagonals.
    Densities are the same, and a policy moves the blocks from there. Where the structure leaves a choice, norms decide.
    ``block=1`` is unstructured sparsity: it trains like any other, but no faster than a dense layer.

    >>> BlockSparsity(sparsity=0.9, block=64).block_shape
    (64, 64)
    """

    sparsity: float
    block: int | tuple[int, int] = 16
    distribution: str = "uniform"
    init: str = "sparse"
    rescale: bool | None = None
    topology: str = "norm"

    def __post_init__(self) -> None:
        if not isinstance(self.sparsity, int | float) or not 0.0 <= self.sparsity < 1.0:
            raise SparsityError(
                f"sparsity {self.sparsity!r} is outside [0, 1); it is the fraction of blocks to drop, such as 0.9"
            )
        sides = self.block if isinstance(self.block, tuple) else (self.block, self.block)
        if len(sides) != 2 or not all(type(side) is int and side >= 1 for side in sides):
            raise SparsityError(
                f"block {self.block!r} is not a positive integer or a pair of them; pass such as 16 or (16, 32)"
            )
        if self.distribution not in tuple(DISTRIBUTIONS):
            raise SparsityError(
                f"distribution {self.distribution!r} is not one of {', '.join(DISTRIBUTIONS)}; use one of these names"
            )
        if self.init not in INITS:
            raise SparsityError(f"init {self.init!r} is not one of {', '.join(INITS)}; use one of these names")
        check_topology(self.topology, balanced=self.distribution == "balanced")
        if self.init == "dense" and self.topology != "norm":
            raise SparsityError(
                f"topology {self.topology!r} says where blocks lie at the start, and a dense start holds them all; "
                'use init="sparse", or leave topology out'
            )

    @property
    def block_shape(self) -> tuple[int, int]:
        """Height and width of a block."""
        return self.block if isinstance(self.block, tuple) else (self.block, self.block)
