"""A fabric on the exact engine, which steps every queue in every cycle."""

from pathlib import Path

from acf.sim.fabric import AdaptiveFabric
from acf.sim.registry import spec_of_kind


def exact_engine(architecture: str | Path) -> AdaptiveFabric:
    """The fabric of that name or TOML file with the exact engine; other machines have none and are refused."""
    return spec_of_kind(AdaptiveFabric, architecture, engine="exact")
