"""A fabric with the engine that steps every queue in every cycle."""

from dataclasses import replace
from pathlib import Path

from acf.errors import ArchitectureError
from acf.sim.fabric import AdaptiveFabric
from acf.sim.registry import find_architecture


def exact_engine(architecture: str | Path) -> AdaptiveFabric:
    """The fabric of that name or TOML file, stepped; other machines have no such engine."""
    name, spec = find_architecture(architecture)
    if not isinstance(spec, AdaptiveFabric):
        raise ArchitectureError(f"{name} is no fabric, so nothing of it can be stepped; leave --exact away")
    return replace(spec, engine="exact")
