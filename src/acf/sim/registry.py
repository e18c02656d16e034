"""The named architectures, and reading one from a TOML file."""

import tomllib
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from acf.errors import ArchitectureError
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.accelerators import GPU_H200, GPU_V100, GpuRoofline, Sat, SparTANN, TensorCore, TensorDash
from acf.sim.fabric import ACF_16384, AdaptiveFabric

KINDS: dict[str, type[AcceleratorSpec]] = {
    "tensorcore": TensorCore,
    "tensordash": TensorDash,
    "fabric": AdaptiveFabric,
    "spartann": SparTANN,
    "sat": Sat,
    "gpu": GpuRoofline,
}
"""What a TOML file may name as its ``kind``."""

ARCHITECTURES: dict[str, AcceleratorSpec] = {
    "tensorcore": TensorCore(),
    "tensordash": TensorDash(),
    "acf-512": AdaptiveFabric(),
    "acf-16384": ACF_16384,
    "spartann": SparTANN(),
    "spartann-bf16": SparTANN(macs=64, value_bytes=2),
    "sat": Sat(),
    "gpu-v100": GPU_V100,
    "gpu-h200": GPU_H200,
}
"""The architectures that have a name."""


def architectures() -> tuple[str, ...]:
    """The names that `acf.simulate` knows.

    >>> architectures()
    ('tensorcore', 'tensordash', 'acf-512', 'acf-16384', 'spartann', 'spartann-bf16', 'sat', 'gpu-v100', 'gpu-h200')
    """
    return tuple(ARCHITECTURES)


def find_architecture(architecture: str | Path | AcceleratorSpec) -> tuple[str, AcceleratorSpec]:
    """Name and Spec of a registered name, a TOML file or a Spec."""
    if isinstance(architecture, AcceleratorSpec):
        named = [name for name, spec in ARCHITECTURES.items() if spec == architecture]
        return (named[0] if named else type(architecture).__name__.lower()), architecture
    if isinstance(architecture, str) and architecture in ARCHITECTURES:
        return architecture, ARCHITECTURES[architecture]
    path = Path(architecture)
    if path.suffix == ".toml":
        return path.stem, load_architecture(path)
    close = get_close_matches(str(architecture), ARCHITECTURES, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ArchitectureError(
        f"architecture {str(architecture)!r} is not known; {hint}use one of {', '.join(ARCHITECTURES)}, or a .toml file"
    )


def load_architecture(path: Path) -> AcceleratorSpec:
    """Read a Spec from TOML: ``kind`` and any of that Spec's fields; unknown keys are refused by name."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArchitectureError(f"{path} cannot be read ({error.strerror}); pass an existing .toml file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArchitectureError(f"{path} is not TOML: {error}; mend that line") from error
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise ArchitectureError(f"{path}: kind {kind!r} is not one of {', '.join(KINDS)}; set kind to one of these")
    return _build(path, KINDS[kind], values)


def _build(path: Path, kind: type[AcceleratorSpec], values: dict[str, Any]) -> AcceleratorSpec:
    known = [item.name for item in fields(kind)]
    for key in values:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
            raise ArchitectureError(f"{path}: key {key!r} is not known for {kind.__name__}; {hint}")
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ArchitectureError(f"{path}: {where} = {problem['input']!r}: {problem['msg']}; mend this value") from error
