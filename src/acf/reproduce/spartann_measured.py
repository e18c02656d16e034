"""SparTANN with gradient densities measured in training: what rows S6 and S11 say when nothing of the paper goes in.

The densities, by layer, are those of `acf bench zeros`, in ``gradient_densities.json`` beside this file.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from acf.reproduce.row import Check, absolute, relative
from acf.reproduce.spartann_workloads import alexnet, backward_trace, googlenet
from acf.sim import Result, simulate
from acf.sim.accelerators import SparTANN

RECORD = "gradient_densities.json"
NETWORKS = {"AlexNet": alexnet, "GoogLeNet": googlenet}
_WHY = "40 steps on enlarged CIFAR-10 are not a training on ImageNet, and batch and initialisation are not Caffe's"


@dataclass(frozen=True)
class Skipped:
    """One step on the machine that skips zeros and on the same machine without skipping."""

    skipping: Result
    dense: Result

    @property
    def speedup(self) -> float:
        """Cycles without skipping over those with it."""
        return self.skipping.speedup_over(self.dense)

    @property
    def saved_on_chip(self) -> float:
        """Per cent of the energy on chip."""
        return 100 * (1 - _on_chip(self.skipping) / _on_chip(self.dense))

    @property
    def saved(self) -> float:
        """Per cent of all energy, DRAM included."""
        return 100 * (1 - self.skipping.energy_j / self.dense.energy_j)


def _on_chip(result: Result) -> float:
    return sum(joules for part, joules in result.energy_breakdown_j.items() if part != "dram")


@cache
def density_record() -> dict[str, Any]:
    """The measured densities by network and layer, and where they come from."""
    stored: dict[str, Any] = json.loads(files("acf.reproduce").joinpath(RECORD).read_text(encoding="utf-8"))
    return stored


@cache
def measured_step(name: str, machine: SparTANN) -> Skipped:
    """The backward passes of all convolutions of a network, "AlexNet" or "AlexNet, DTS"."""
    trace = backward_trace(NETWORKS[name.partition(",")[0]](), density_record()["densities"][name])
    return Skipped(simulate(trace, machine), simulate(trace, replace(machine, skips_zeros=False)))


def measured_speedups(machine: SparTANN, published: dict[str, float]) -> Iterator[Check]:
    """The speedup of every network, beside the published one."""
    for name, paper in published.items():
        check = relative(f"{name}, densities measured", paper, measured_step(name, machine).speedup, 0.02, "x")
        yield replace(check, known_miss=_WHY)


def measured_savings(machine: SparTANN) -> Iterator[Check]:
    """The energy saved, beside the published shares."""
    skipping, dts = (measured_step(name, machine) for name in ("AlexNet", "AlexNet, DTS"))
    yield _known(absolute("on chip, skipping, densities measured", 78, skipping.saved_on_chip, 3, " %"))
    yield _known(absolute("on chip, DTS, densities measured", 85, dts.saved_on_chip, 3, " %"))
    for network in NETWORKS:
        saved = measured_step(f"{network}, DTS", machine).saved
        what = f"total, {network}, DTS, densities measured"
        yield _known(Check(what, "83 to 84 %", saved, 80.0, 87.0, "3 pp"))


def _known(check: Check) -> Check:
    return replace(check, known_miss=_WHY)
