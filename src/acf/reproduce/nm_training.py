"""What N:M training saves: operations by counting, cycles on SAT, against dense training on the same array."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from acf.errors import ArchitectureError
from acf.sim.accelerators.sat import Product, Sat
from acf.zoo.shapes import AttentionShape, LayerShape, NetworkShape


def training_operations(network: NetworkShape, machine: Sat) -> int:
    """Multiply-accumulates of one example's three passes: N:M layers forward and backward at N/M, all else dense."""
    kept, size = machine.group_kept, machine.group_size
    return sum(
        product.m * product.n * (product.k // size * kept if product.sparse else product.k)
        for product in training_products(network, 1, machine)
    )


def training_cycles(network: NetworkShape, batch: int, machine: Sat) -> int:
    """Cycles of the products of one training step when memory never makes the array wait."""
    if batch < 1:
        raise ArchitectureError(f"batch {batch} is below 1; train on at least one example")
    repeated = Counter(training_products(network, batch, machine))
    return sum(times * machine.product_cycles(product) for product, times in repeated.items())


def dense_training(machine: Sat) -> Sat:
    """The same array for dense training."""
    return replace(machine, group_kept=machine.group_size)


def training_products(network: NetworkShape, batch: int, machine: Sat) -> Iterator[Product]:
    """Every matrix product of a training step, marked sparse where ``machine`` prunes its weights."""
    for layer in network:
        if isinstance(layer, AttentionShape):
            yield from _attention_products(layer, batch)
        else:
            yield from _layer_products(layer, batch, machine)


def _layer_products(layer: LayerShape, batch: int, machine: Sat) -> Iterator[Product]:
    """Forward, input and weight gradient; an input gradient is counted over the outputs' positions, as its work is."""
    positions, taps = batch * layer.positions, layer.taps
    inputs, outputs = layer.in_channels, layer.out_channels
    prunes = machine.group_kept < machine.group_size and not layer.first
    yield Product("forward", positions, taps * inputs, outputs, taps, prunes and inputs % machine.group_size == 0)
    if not layer.first:
        yield Product(
            "input_grad", positions, taps * outputs, inputs, taps, prunes and outputs % machine.group_size == 0
        )
    yield Product("weight_grad", outputs, positions, taps * inputs, taps)


def _attention_products(layer: AttentionShape, batch: int) -> Iterator[Product]:
    """Scores and context, and the gradients of both their operands, for every head of every example."""
    tokens, channels = layer.tokens, layer.head_channels
    scores = [("forward", tokens, channels, tokens), *[("input_grad", tokens, tokens, channels)] * 2]
    context = [("forward", tokens, tokens, channels), ("input_grad", tokens, channels, tokens)]
    context.append(("input_grad", tokens, tokens, channels))
    for _ in range(batch * layer.heads):
        yield from (Product(*shape, updates_weights=False) for shape in scores + context)
