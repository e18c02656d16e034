"""Sweeps over the fields of a machine or the parameters of a training run: grid or Optuna, on one machine or on Ray."""

from acf.sweep.evaluation import Attempt, Evaluation, Objective, OwnFunction, PlayedTraces
from acf.sweep.front import importance, pareto_front
from acf.sweep.run import Sweep, SweepRecord, SweepRow, read_sweep, run_sweep
from acf.sweep.search import Grid, OptunaSearch, Search
from acf.sweep.sweep import Axes, parse_settings
from acf.sweep.workers import Processes, RayCluster, ThisProcess, Workers, local_workers

__all__ = [
    "Attempt",
    "Axes",
    "Evaluation",
    "Grid",
    "Objective",
    "OptunaSearch",
    "OwnFunction",
    "PlayedTraces",
    "Processes",
    "RayCluster",
    "Search",
    "Sweep",
    "SweepRecord",
    "SweepRow",
    "ThisProcess",
    "Workers",
    "importance",
    "local_workers",
    "pareto_front",
    "parse_settings",
    "read_sweep",
    "run_sweep",
]
