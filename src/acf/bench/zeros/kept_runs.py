"""Zeros in the traced steps that `acf bench resnet50` or `acf bench transformer` kept, of networks trained longer."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from acf.bench.evaluation.run import STAGES, SystemRun
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.provenance import provenance
from acf.bench.training.variant import Variant
from acf.bench.zeros.measure import MeasuredZeros, gathered
from acf.errors import DataError, SparsityError
from acf.nn import BlockSparsity
from acf.trace import Trace

LAST = STAGES[-1]

NETWORKS = {"resnet50-base": "resnet50", "transformer-base": "transformer-base"}
"""The network of the zoo by the task that trains it; those of ``--size small`` have no name there."""


def zeros_of_runs(folder: Path, network: str) -> list[MeasuredZeros]:
    """Zeros after the last step, one variant for each traced system with the mean over its traced seeds."""
    with EvaluationStore(folder, create=False) as store:
        _require(store, folder, network)
        runs = [run for run in store.runs() if store.trace(run.system, LAST, run.seed).exists()]
        systems = dict.fromkeys(run.system for run in runs)
        if not runs:
            raise DataError(
                f"{folder} keeps no traced last step; train with --captured above 0 and the systems in --traced"
            )
        data = store.sessions()[-1].get("data", "")
        return [_variant(store, network, data, [run for run in runs if run.system == name]) for name in systems]


def runs_record(folder: Path, network: str, measured: Sequence[MeasuredZeros]) -> dict[str, Any]:
    """The record of one network, under its name; ``runs`` are the calls that trained."""
    with EvaluationStore(folder, create=False) as store:
        sessions = store.sessions()
    return {network: provenance() | {"runs": sessions, "variants": [each.to_dict() for each in measured]}}


def _require(store: EvaluationStore, folder: Path, network: str) -> None:
    trained = str((store.fact("task") or {}).get("name", "nothing"))
    if NETWORKS.get(trained) != network:
        raise DataError(f"the runs of {folder} are of {trained}, not of {network}; name the network that was trained")


def _absent(system: str) -> float:
    """Share of blocks that ``system`` trains without; others than dense and block-sparse ones are refused."""
    with suppress(SparsityError):  # masked and 2:4 are no methods of their own
        sparsity = Variant.parse(system).recipe.sparsity
        if sparsity is None or isinstance(sparsity, BlockSparsity):
            return 0.0 if sparsity is None else sparsity.sparsity
    raise DataError(
        f"{system} is neither dense nor block-sparse, and a record of zeros has such networks alone; remove its traces"
    )


def _variant(store: EvaluationStore, network: str, data: str, runs: Sequence[SystemRun]) -> MeasuredZeros:
    absent = _absent(runs[0].system)
    traces = [Trace.load(store.trace(run.system, LAST, run.seed)) for run in runs]
    losses = tuple(run.losses[-1].loss if run.losses else float("nan") for run in runs)
    steps = fmean(run.steps for run in runs)
    return gathered(network, (absent, 0.0), f"{data}, after {steps:.0f} steps of {runs[0].system}", traces, losses)
