"""Rows B1 to B5: BDWP, the N:M training method, and SAT, its accelerator."""

import numpy as np

from acf.reproduce.row import Check, Row, absolute, at_most, holds
from acf.reproduce.sat_training import dense_training, training_cycles, training_operations
from acf.sim import spec_of_kind
from acf.sim.accelerators import Sat
from acf.sim.accelerators.sore import reduce_groups
from acf.zoo.shapes import network_shapes

SAT = spec_of_kind(Sat, "sat")
BATCH = 32
SAT_NETWORKS = ("resnet50", "vgg16", "vit-b16")
"""The networks that are counted, on images of 224 x 224."""


def b1() -> Row:
    """Operations of 2:8 training."""
    saved = {}
    for name in SAT_NETWORKS:
        shapes = network_shapes(name)
        dense = training_operations(shapes, dense_training(SAT))
        saved[name] = 100 * (1 - training_operations(shapes, SAT) / dense)
    return Row(
        "48 % fewer training operations at 2:8",
        "forward and backward at 2/8; weight gradients, stems, attention and layers not divided by 8 dense",
        tuple(Check(name, "48 %", share, 47.0, 50.0, "47 to 50 %") for name, share in saved.items()),
    )


def b2() -> Row:
    """Speedup of training."""
    dense = dense_training(SAT)
    gains = [
        training_cycles(shapes, BATCH, dense) / training_cycles(shapes, BATCH, SAT)
        for shapes in map(network_shapes, SAT_NETWORKS)
    ]
    return Row(
        "1.75x over dense training on the same accelerator",
        f"ResNet-50, VGG-16, ViT-B/16, batch {BATCH}",
        (
            Check("mean", "1.75x", float(np.mean(gains)), 1.6, 1.95, "1.6 to 1.95x"),
            at_most("largest", 2.0, max(gains), "x"),
        ),
        rests_on="32 x 32 PEs and all latencies, assumptions; none is published",
    )


def b3() -> Row:
    """Accuracy of N:M training."""
    return Row(
        "mean accuracy loss 0.56 % at 2:8",
        "training runs, at least three seeds",
        because="it needs training runs; `acf bench accuracy --methods dense,bdwp-2:8` makes them",
    )


def b4() -> Row:
    """Other accelerators."""
    return Row(
        "2.97-25.22x throughput, 1.36-3.58x energy efficiency over prior FPGA accelerators",
        "the authors' board and those of others",
        because="it compares measurements of other boards; cited only",
    )


def b5() -> Row:
    """The reduction engine."""
    values = np.random.default_rng(0).integers(-50, 51, (320, 8)).astype(float)
    reduced = reduce_groups(values, kept=2, group_size=8)
    largest = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :2]
    return Row(
        "SORE: 32 lanes, a top-K sorter each, M cycles per N:M group",
        "320 groups of 8 against a stable sort; a property test does more",
        (
            holds("keeps what a sort keeps", bool(np.array_equal(reduced.indices, largest))),
            absolute("cycles", 320 / 32 * 8, reduced.cycles, 0),
        ),
    )
