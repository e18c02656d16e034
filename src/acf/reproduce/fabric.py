"""Rows U1 to U4: the proposal of the Adaptive Compute Fabric, whose figures are expectations and not results.

A ResNet-50 step on the fabric takes a while to simulate, so U2 reads what `acf bench fabric` measured, in
``fabric_step.json`` beside this file.
"""

import json
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from acf.bench.fabric.ablation import ABLATIONS
from acf.bench.fabric.ablation_runs import AblationOptions
from acf.masks import BlockDST
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.reproduce.row import Check, Row, absolute, at_most, holds, measured
from acf.sim.fabric import AdaptiveFabric
from acf.sim.registry import spec_of_kind
from acf.train import attach

RECORD = "fabric_step.json"


def u1() -> Row:
    """Sparsity after every update of the topology."""
    distances = [abs(present - target) for present, target in blocks_after_updates(sparsity=0.9)]
    return Row(
        "the sparsity ratio s holds after every prune/regrow step",
        "Algorithm 1 on two linear layers of 256 x 256, 90 % of 256 blocks of 16 absent, from a dense start; "
        f"{len(distances)} counts after updates",
        (at_most("farthest from the target", 1.0, max(distances), " blocks"),),
    )


def blocks_after_updates(sparsity: float, updates: int = 6) -> list[tuple[int, float]]:
    """Present blocks of every layer after every topology update of a short run, and how many there should be."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    sparsify_(model, BlockSparsity(sparsity, block=16, init="dense"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = attach(model, optimizer, BlockDST(total_steps=2 * updates, every=2, stop_at=1.0))
    counts = []
    for step in range(1, 2 * updates + 1):
        optimizer.zero_grad()
        model(torch.randn(32, 256)).square().mean().backward()
        optimizer.step()
        if step % 2 == 0:
            layers = block_sparse_layers(model).values()
            counts += [(int(layer.mask().sum()), (1 - sparsity) * layer.layout.block_count) for layer in layers]
    topology.detach()
    return counts


def u2() -> Row:
    """Throughput, energy and utilisation of a step."""
    record = step_record()
    fabric, dense, gpu = (_machine(record, name) for name in ("acf-512", "tensorcore", "gpu-v100"))
    large, large_gpu = (_machine(record, name) for name in ("acf-h200", "gpu-h200"))
    faster, less_energy = (gpu[key] / fabric[key] for key in ("step_seconds", "energy_j"))
    equal_peak = dense["step_seconds"] / fabric["step_seconds"]
    equal_gpu = large_gpu["step_seconds"] / large["step_seconds"]
    smaller = "512 MACs at 250 MHz stand against a whole V100"
    return Row(
        "3-5x training throughput over a dense GPU, 2-4x less energy per iteration, U above 80 % at 90 % sparsity",
        f"{record['source']}; GPUs are rooflines; {'; '.join(record['command'])}",
        (
            Check("throughput over a V100", "3 to 5x", faster, 3.0, 5.0, "3 to 5x", known_miss=smaller),
            measured("throughput of acf-h200 over an H200 of equal peak", "3 to 5x", equal_gpu),
            measured("throughput over dense tensor cores of equal peak", "-", equal_peak),
            measured("energy of a V100 over ours", "2 to 4x", less_energy),
            Check(
                "U of the whole step, %", "above 80 %", 100 * fabric["step_utilization"], 80.0, 100.0, "at least 80 %"
            ),
        ),
        rests_on="a model; random blocks, synthetic zeros; control and clock charged by our own synthesis at 65 nm; "
        "a clock of 1.887 GHz, assumed for acf-h200",
    )


def step_record() -> dict[str, Any]:
    """The recorded ResNet-50 step."""
    stored: dict[str, Any] = json.loads(files("acf.reproduce").joinpath(RECORD).read_text(encoding="utf-8"))
    return stored


def _machine(record: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = (row for row in record["rows"] if row["machine"] == name)
    return dict(row)


def u3() -> Row:
    """The protocol of the evaluation."""
    options = AblationOptions()
    varied = {"block", "regrow", "interconnect"} <= set(ABLATIONS)
    return Row(
        "512 SCUs; 50, 75 and 90 %; three trials, mean and deviation; ablations of block size, regrowth, interconnect",
        "the defaults of `acf bench ablation` and the shipped `acf-512`",
        (
            absolute("SCUs", 512, spec_of_kind(AdaptiveFabric, "acf-512").scus, 0),
            absolute("trials", 3, options.seeds, 0),
            holds("sparsities 50, 75 and 90 %", options.sparsities == (0.5, 0.75, 0.9)),
            holds("ablations of block size, regrowth and interconnect", varied),
        ),
    )


def u4() -> Row:
    """A sparse GPU kernel after TensorDash."""
    return Row(
        "a TensorDash-like GPU kernel gains at most 2x",
        "a GPU kernel that skips single zeros",
        because="no GPU kernel skips single zeros; `acf simulate --on tensordash` models the accelerator instead (T12)",
    )
