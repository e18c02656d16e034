"""DRAM: timing and energy of every burst, and what long streams sustain."""

from acf.sim.dram.simulate import DramPlaces, DramRun, locate, simulate_requests
from acf.sim.dram.spec import MEMORIES, DramPower, DramSpec, DramTiming, dram_spec
from acf.sim.dram.sustained import SustainedRate, energy_per_bit, random_runs, sustained_bandwidth, sustained_rate

__all__ = [
    "MEMORIES",
    "DramPlaces",
    "DramPower",
    "DramRun",
    "DramSpec",
    "DramTiming",
    "SustainedRate",
    "dram_spec",
    "energy_per_bit",
    "locate",
    "random_runs",
    "simulate_requests",
    "sustained_bandwidth",
    "sustained_rate",
]
