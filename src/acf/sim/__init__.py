"""Simulating a trace on modelled accelerators."""

from acf.sim.comparison import Comparison
from acf.sim.registry import ARCHITECTURES, architectures, find_architecture, spec, spec_of_kind
from acf.sim.result import OpResult, Result, StepTime, VectorResult
from acf.sim.simulate import simulate, simulate_parts

__all__ = [
    "ARCHITECTURES",
    "Comparison",
    "OpResult",
    "Result",
    "StepTime",
    "VectorResult",
    "architectures",
    "find_architecture",
    "simulate",
    "simulate_parts",
    "spec",
    "spec_of_kind",
]
