"""The launch configurations worth trying for each kernel, block size and arithmetic; the first is the default."""

from dataclasses import replace
from functools import cache

from acf.ops.triton.tuning import LaunchConfig

DENSE = LaunchConfig("dense")
"""Unpack the weight and use the dense library: never the default, chosen where it is the fastest."""

_SIXTEEN_BIT_PRODUCT = {
    128: (
        LaunchConfig("descriptor", tile=128, depth=64, warps=4, stages=3),
        LaunchConfig("descriptor", tile=256, depth=64, swap=True, warps=8, stages=4),
        LaunchConfig("descriptor", tile=256, depth=64, swap=True, warps=8, stages=3),
        LaunchConfig("descriptor", tile=128, depth=64, warps=4, stages=2),
        LaunchConfig("descriptor", tile=128, depth=32, warps=4, stages=4),
    ),
    64: (
        LaunchConfig("descriptor", tile=256, depth=32, swap=True, warps=4, stages=4),
        LaunchConfig("descriptor", tile=256, depth=32, swap=True, warps=4, stages=3),
        LaunchConfig("descriptor", tile=512, depth=64, swap=True, warps=8, stages=3),
        LaunchConfig("descriptor", tile=128, depth=64, swap=True, warps=4, stages=3),
    ),
    32: (
        LaunchConfig("descriptor", tile=512, depth=32, warps=4, stages=3),
        LaunchConfig("descriptor", tile=256, depth=32, warps=4, stages=4),
        LaunchConfig("descriptor", tile=256, depth=32, warps=4, stages=3),
        LaunchConfig("gather", tile=256, pack=2, warps=4, stages=3),
    ),
    16: (
        LaunchConfig("transposed", tile=512, depth=16, warps=4, stages=3),
        LaunchConfig("transposed", tile=256, depth=16, warps=4, stages=4),
        LaunchConfig("gather", tile=256, pack=4, warps=8, stages=3),
        LaunchConfig("descriptor", tile=256, depth=16, warps=4, stages=6),
    ),
}

WARP_SPECIALISED_PRODUCT = {
    128: LaunchConfig("warp-specialised", tile=256, depth=64, warps=4, stages=4),
    64: LaunchConfig("warp-specialised", tile=512, depth=64, warps=4, stages=3),
}
"""Persistent, warp-specialised kernels; only on chips that have them (`acf.ops.triton.warp_specialised`)."""

SEPARATE = LaunchConfig("separate")
"""One kernel after the other, such as two products and an activation: the default only where nothing is fused."""

_SIXTEEN_BIT_PAIR = {
    128: (
        LaunchConfig("descriptor", tile=128, depth=64, warps=8, stages=3),
        LaunchConfig("descriptor", tile=128, depth=64, swap=True, warps=8, stages=4),
        LaunchConfig("descriptor", tile=64, depth=64, swap=True, warps=4, stages=3),
        LaunchConfig("descriptor", tile=64, depth=64, warps=4, stages=3),
    ),
    64: (
        LaunchConfig("descriptor", tile=128, depth=64, swap=True, warps=4, stages=3),
        LaunchConfig("descriptor", tile=256, depth=32, swap=True, warps=8, stages=4),
        LaunchConfig("descriptor", tile=256, depth=64, swap=True, warps=8, stages=3),
        LaunchConfig("descriptor", tile=128, depth=64, warps=8, stages=3),
    ),
    32: (
        LaunchConfig("descriptor", tile=256, depth=32, warps=4, stages=3),
        LaunchConfig("descriptor", tile=128, depth=32, warps=4, stages=4),
        LaunchConfig("descriptor", tile=256, depth=32, warps=8, stages=4),
    ),
}
"""Kernels with two accumulators, so half the tile of a product or twice its warps."""

_SIXTEEN_BIT_WEIGHT_GRAD = {
    128: (
        LaunchConfig("gather", depth=64, pack=2, swap=True, warps=8, stages=3),
        LaunchConfig("descriptor", depth=64, pack=2, warps=8, stages=4),
        LaunchConfig("descriptor", depth=64, pack=1, warps=4, stages=3),
    ),
    64: (
        LaunchConfig("gather", depth=32, pack=4, swap=True, warps=4, stages=4),
        LaunchConfig("gather", depth=64, pack=8, swap=True, warps=8, stages=3),
        LaunchConfig("gather", depth=64, pack=2, swap=True, warps=4, stages=4),
    ),
    32: (
        LaunchConfig("gather", depth=64, pack=8, warps=4, stages=3),
        LaunchConfig("gather", depth=64, pack=4, warps=4, stages=2),
    ),
    16: (
        LaunchConfig("transposed", depth=64, pack=16, warps=4, stages=3),
        LaunchConfig("transposed", depth=64, pack=32, warps=8, stages=3),
        LaunchConfig("gather", depth=32, pack=32, warps=8, stages=2),
    ),
}


@cache
def product_configs(
    block: int, itemsize: int, precision: str, warp_specialised: bool = False
) -> tuple[LaunchConfig, ...]:
    """Candidates of the forward and input-gradient products; ``warp_specialised`` where the chip has those kernels."""
    if itemsize == 2:
        added = (WARP_SPECIALISED_PRODUCT[block],) if warp_specialised and block in WARP_SPECIALISED_PRODUCT else ()
        return (*_SIXTEEN_BIT_PRODUCT[block], *added, DENSE)
    depth = min(block, 32)
    if precision == "tf32":
        return tuple(
            LaunchConfig("descriptor", tile=tile, depth=depth, pack=32 // depth, warps=warps, stages=3)
            for tile, warps in ((128, 4), (128, 8), (64, 4))
        )
    # Exact float32 runs on the CUDA cores, whose operands live in registers: small tiles.
    return tuple(
        LaunchConfig("descriptor", tile=tile, depth=min(block, 16), warps=warps, stages=2)
        for tile, warps in ((64, 8), (64, 4), (128, 8))
    )


@cache
def gated_configs(block: int, itemsize: int) -> tuple[LaunchConfig, ...]:
    """Candidates of the two products of a gated pair, whose sums a program holds both; none for other than 16 bits."""
    return (*_SIXTEEN_BIT_PAIR[block], SEPARATE) if itemsize == 2 and block in _SIXTEEN_BIT_PAIR else ()


@cache
def pair_configs(block: int, itemsize: int) -> tuple[LaunchConfig, ...]:
    """Candidates of the input gradients beside a gated pair: those of a product that read through descriptors."""
    if itemsize != 2 or block not in _SIXTEEN_BIT_PAIR:
        return ()
    return (*(config for config in _SIXTEEN_BIT_PRODUCT[block] if config.kernel == "descriptor"), SEPARATE)


@cache
def weight_grad_configs(block: int, itemsize: int, precision: str, splits: tuple[int, ...]) -> tuple[LaunchConfig, ...]:
    """Candidates of the weight gradient of a linear layer, with every number of ``splits`` and both groupings."""
    if itemsize == 2:
        base = _SIXTEEN_BIT_WEIGHT_GRAD[block]
    elif precision == "tf32":
        base = (LaunchConfig("gather", depth=32, pack=max(1, 128 // block), warps=4, stages=3),)
    else:
        base = (LaunchConfig("gather", depth=16, pack=max(1, 64 // block), warps=8, stages=2),)
    return (
        *(
            replace(config, splits=split, by_input=by_input)
            for config in base
            for split in splits
            for by_input in (False, True)
        ),
        DENSE,
    )


@cache
def conv_product_configs(block: int, itemsize: int, precision: str, boxed: bool) -> tuple[LaunchConfig, ...]:
    """Candidates of a convolution's forward pass and input gradient; ``boxed`` where the stride is 1."""
    if itemsize == 4:
        depth = min(block, 32 if precision == "tf32" else 16)
        return tuple(LaunchConfig("gather", tile=64, depth=depth, warps=warps, stages=2) for warps in (8, 4))
    depth, swap = min(block, 64), block >= 64
    gathered = (
        LaunchConfig("gather", tile=128, depth=depth, warps=4, stages=3),
        LaunchConfig("gather", tile=64, depth=depth, warps=4, stages=4),
        LaunchConfig("gather", tile=128, depth=depth, warps=8, stages=3),
    )
    if not boxed:
        return gathered
    return (
        LaunchConfig("descriptor", tile=128, depth=depth, swap=swap, warps=4, stages=3),
        LaunchConfig("descriptor", tile=128, depth=min(block, 32), swap=swap, warps=4, stages=4),
        LaunchConfig("descriptor", tile=256, depth=min(block, 32), swap=swap, warps=4, stages=4),
        LaunchConfig("descriptor", tile=128, depth=depth, warps=8, stages=3),
        *gathered[:1],
    )


@cache
def conv_statistics_configs(block: int, itemsize: int, precision: str, boxed: bool) -> tuple[LaunchConfig, ...]:
    """Candidates of a convolution that gives batch statistics too: those of the product that read boxes of pixels."""
    products = conv_product_configs(block, itemsize, precision, boxed)
    return (*(config for config in products if config.kernel == "descriptor"), SEPARATE)


@cache
def conv_weight_grad_configs(
    block: int, itemsize: int, precision: str, boxed: bool, splits: tuple[int, ...]
) -> tuple[LaunchConfig, ...]:
    """Candidates of a convolution's weight gradient, each with every number of ``splits``."""
    base: tuple[LaunchConfig, ...]
    if itemsize == 4:
        base = (LaunchConfig("gather", depth=32 if precision == "tf32" else 16, swap=True, stages=2),)
    elif boxed:
        base = (
            LaunchConfig("descriptor", depth=64, stages=3),
            LaunchConfig("descriptor", depth=64, stages=4),
            LaunchConfig("descriptor", depth=128, stages=2),
            LaunchConfig("descriptor", depth=128, stages=3),
        )
    else:
        base = (
            LaunchConfig("gather", depth=64, swap=True, stages=3),
            LaunchConfig("gather", depth=128, swap=True, stages=2),
        )
    return tuple(replace(config, splits=split) for config in base for split in splits)
