"""What N:M training saves: operations by counting, cycles on SAT, against dense training on the same array."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from acf.errors import ArchitectureError
from acf.sim.accelerators.sat import Product, Sat
from acf.zoo.shapes import AttentionShape, NetworkShapes, ProductShape


def training_operations(network: NetworkShapes, machine: Sat) -> int:
    """Multiply-accumulates of one example's three passes: pruned products at N/M, all others dense."""
    kept, size = machine.group_kept, machine.group_size
    return sum(
        product.m * product.n * (product.k // size * kept if product.sparse else product.k)
        for product in training_products(network, 1, machine)
    )


def training_cycles(network: NetworkShapes, batch: int, machine: Sat) -> int:
    """Cycles of the products of one training step when memory never makes the array wait."""
    if batch < 1:
        raise ArchitectureError(f"batch {batch} is below 1; train on at least one example")
    repeated = Counter(training_products(network, batch, machine))
    return sum(times * machine.product_cycles(product) for product, times in repeated.items())


def dense_training(machine: Sat) -> Sat:
    """The same array for dense training."""
    return replace(machine, group_kept=machine.group_size)


def training_products(network: NetworkShapes, batch: int, machine: Sat) -> Iterator[Product]:
    """Every matrix product of a training step, marked sparse where ``machine`` prunes its weights."""
    for layer in network.layers:
        yield from _layer_products(layer, batch, machine)
    for attention in network.attentions:
        yield from _attention_products(attention, batch)


def _layer_products(layer: ProductShape, batch: int, machine: Sat) -> Iterator[Product]:
    """Forward, input gradient, weight gradient; a layer that reads the data stays dense.

    The input gradient is counted over output positions: a strided convolution does no more work than that.
    """
    positions, taps = batch * layer.positions, layer.taps
    inputs, outputs = layer.in_channels, layer.out_channels
    prunes = machine.group_kept < machine.group_size and not layer.reads_data
    yield Product("forward", positions, taps * inputs, outputs, taps, prunes and inputs % machine.group_size == 0)
    if not layer.reads_data:
        sparse = prunes and outputs % machine.group_size == 0
        yield Product("input_grad", positions, taps * outputs, inputs, taps, sparse)
    yield Product("weight_grad", outputs, positions, taps * inputs, taps)


def _attention_products(layer: AttentionShape, batch: int) -> Iterator[Product]:
    """Scores and context with the gradients of both operands of each, for every head of every example."""
    queries, keys, channels = layer.queries, layer.keys, layer.head_channels
    shapes = (
        ("forward", queries, channels, keys),  # scores
        ("input_grad", queries, keys, channels),
        ("input_grad", keys, queries, channels),
        ("forward", queries, keys, channels),  # context
        ("input_grad", queries, channels, keys),
        ("input_grad", keys, queries, channels),
    )
    for _ in range(batch * layer.heads):
        yield from (Product(*shape, updates_weights=False) for shape in shapes)
