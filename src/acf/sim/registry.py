"""The architectures by name: every file in ``configs/`` is one, and a Spec checks what its file says.

A new machine is a Spec module in `acf.sim.accelerators`, its TOML file in ``configs/``, and a line in `ARCHITECTURES`.
Machines from outside the package are entry points of `acf.architectures`, or named as ``module:name``.
"""

from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from acf.errors import AcfError, ArchitectureError, PluginError
from acf.plugins import ARCHITECTURES as MACHINE_PLUGINS
from acf.plugins import describe_plugin, import_object, is_reference, load_plugin, plugin_names
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.accelerators import GpuRoofline, Sat, SparTANN, TensorCore, TensorDash
from acf.sim.fabric import AdaptiveFabric
from acf.toml import parse_toml

Spec = TypeVar("Spec", bound=AcceleratorSpec)

CONFIGS = Path(__file__).with_name("configs")
"""The shipped TOML files; the stem of each is a name that `find_architecture` knows."""

ARCHITECTURES: dict[str, type[AcceleratorSpec]] = {
    "tensorcore": TensorCore,
    "tensordash": TensorDash,
    "acf-512": AdaptiveFabric,
    "acf-16384": AdaptiveFabric,
    "spartann": SparTANN,
    "spartann-bf16": SparTANN,
    "sat": Sat,
    "gpu-v100": GpuRoofline,
    "gpu-h200": GpuRoofline,
}
"""The architectures that `acf.simulate` plays by default, and the Spec that checks the file of each."""

KINDS: dict[str, type[AcceleratorSpec]] = {each.kind: each for each in ARCHITECTURES.values()}
"""What a TOML file may name as its ``kind``."""


def architectures() -> tuple[str, ...]:
    """The public names; the other files in ``configs/`` are variants of them and are found by name, too.

    >>> architectures()
    ('tensorcore', 'tensordash', 'acf-512', 'acf-16384', 'spartann', 'spartann-bf16', 'sat', 'gpu-v100', 'gpu-h200')
    """
    return tuple(ARCHITECTURES)


@cache
def shipped_names() -> tuple[str, ...]:
    """Names of all shipped files, the public ones first."""
    return tuple(dict.fromkeys((*ARCHITECTURES, *sorted(path.stem for path in CONFIGS.glob("*.toml")))))


def spec(architecture: str | Path, /, **changes: Any) -> AcceleratorSpec:
    """The Spec of a shipped name or a TOML file, with some of its fields changed; ``name`` labels its results.

    >>> spec("acf-512", mesh_columns=16, name="wide").macs_per_cycle
    1024
    """
    name, found = find_architecture(architecture)
    return _changed(name, found, changes)


def spec_of_kind(kind: type[Spec], architecture: str | Path, /, **changes: Any) -> Spec:
    """`spec`, refused unless it is a ``kind``: for code that needs fields which only that kind has."""
    name, found = find_architecture(architecture)
    if not isinstance(found, kind):
        fitting = ", ".join(name for name, each in ARCHITECTURES.items() if issubclass(each, kind))
        raise ArchitectureError(f"{name} is no {kind.kind} but a {found.kind}; use one such as {fitting}")
    return _changed(name, found, changes)


def find_architecture(architecture: str | Path | AcceleratorSpec) -> tuple[str, AcceleratorSpec]:
    """Name and Spec of a shipped name, a TOML file, a plug-in, ``module:name`` or a Spec."""
    if isinstance(architecture, AcceleratorSpec):
        return _label(architecture), architecture
    if str(architecture) in shipped_names():
        return str(architecture), _shipped(str(architecture))
    if not isinstance(architecture, str | Path):
        raise ArchitectureError(
            f"architecture {architecture!r} is a {type(architecture).__name__}; pass a name, a TOML file or a Spec"
        )
    path = Path(architecture)
    if path.suffix == ".toml":
        loaded = load_architecture(path)
        return loaded.name or path.stem, loaded
    if (outside := _from_outside(str(architecture))) is not None:
        return outside.name or str(architecture).rpartition(":")[2], outside
    known = (*shipped_names(), *plugin_names(MACHINE_PLUGINS))
    close = get_close_matches(str(architecture), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ArchitectureError(
        f"architecture {str(architecture)!r} is not known; {hint}use one of {', '.join(ARCHITECTURES)}, "
        "a .toml file, or module:name"
    )


def load_architecture(path: Path) -> AcceleratorSpec:
    """Read a Spec from TOML; unknown keys are refused by name.

    The file gives ``kind`` and every field of that Spec, or ``base``, a shipped name or another file, and what differs.
    """
    values = _values(path)
    return _checked(str(path), _kind(path, values.pop("kind", None)), values)


def _kind(path: Path, kind: Any) -> type[AcceleratorSpec]:
    """The Spec class of a file's ``kind``: a key of `KINDS`, ``module:Class``, or the class of a base from outside."""
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    found = import_object(kind) if isinstance(kind, str) and is_reference(kind) else kind
    if isinstance(found, type) and issubclass(found, AcceleratorSpec):
        return found
    raise ArchitectureError(
        f"{path}: kind {kind!r} is not one of {', '.join(KINDS)}; set kind, or base to a shipped name"
    )


def _from_outside(name: str) -> AcceleratorSpec | None:
    """The Spec of a plug-in or of ``module:name``; None where the name is neither."""
    if name in plugin_names(MACHINE_PLUGINS):
        where = describe_plugin(MACHINE_PLUGINS, name)
        found = load_plugin(MACHINE_PLUGINS, name)
    elif is_reference(name):
        where, found = name, import_object(name)
    else:
        return None
    try:
        return _as_spec(found)
    except Exception as error:  # whatever a stranger's Spec raises when it is built
        text = str(error) if isinstance(error, AcfError) else f"{type(error).__name__}: {error}"
        raise PluginError(f"{where} gives no machine: {text}") from error


def _as_spec(found: Any) -> AcceleratorSpec:
    if isinstance(found, AcceleratorSpec):
        return found
    if isinstance(found, str | Path):
        return load_architecture(Path(found))
    if not (isinstance(found, type) and issubclass(found, AcceleratorSpec)):
        raise ArchitectureError(
            f"it is a {type(found).__name__}; let it be a Spec, a subclass of AcceleratorSpec or a path to a .toml file"
        )
    needed = [item.name for item in fields(found) if not _has_default(item)]
    if needed:
        raise ArchitectureError(
            f"{found.__name__} has no default for {', '.join(needed)}; give each one, or name a Spec built from it"
        )
    return _checked(found.__name__, found, {})


@cache
def _shipped(name: str) -> AcceleratorSpec:
    return load_architecture(CONFIGS / f"{name}.toml")


def _label(architecture: AcceleratorSpec) -> str:
    """The Spec's own name, that of the public architecture it equals, or that of its class."""
    kind = type(architecture)
    equal = (name for name, each in ARCHITECTURES.items() if each is kind and _shipped(name) == architecture)
    return architecture.name or next(equal, kind.__name__.lower())


def _values(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """What a file says, over what its base says."""
    if path in seen:
        raise ArchitectureError(f"{path}: base leads back to this file; name another base")
    try:
        values = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArchitectureError(f"{path} cannot be read ({error.strerror}); pass an existing .toml file") from error
    except ValueError as error:
        raise ArchitectureError(f"{path} is not TOML: {error}; mend that line") from error
    base = values.pop("base", None)
    if base is None:
        return values
    if base not in shipped_names() and not str(base).endswith(".toml"):
        if (outside := _from_outside(str(base))) is not None:
            own = {item.name: getattr(outside, item.name) for item in fields(outside) if item.name != "name"}
            return {"kind": type(outside)} | own | values
        close = get_close_matches(str(base), shipped_names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "name a shipped architecture or a .toml file"
        raise ArchitectureError(f"{path}: base {base!r} is not known; {hint}")
    base_path = CONFIGS / f"{base}.toml" if base in shipped_names() else path.parent / base
    return _values(base_path, (*seen, path)) | values


def _changed(where: str, found: Spec, changes: dict[str, Any]) -> Spec:
    values = {item.name: getattr(found, item.name) for item in fields(found)}
    return _checked(where, type(found), values | changes) if changes else found


def _has_default(item: Field[Any]) -> bool:
    return item.default is not MISSING or item.default_factory is not MISSING


@cache
def _adapter(kind: type[AcceleratorSpec]) -> TypeAdapter[AcceleratorSpec]:
    return TypeAdapter(kind)


def _checked(where: str, kind: type[Spec], values: dict[str, Any]) -> Spec:
    """The Spec of these values; what is unknown, missing or of the wrong type is refused by name."""
    known = [item.name for item in fields(kind)]
    for key in values:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
            raise ArchitectureError(f"{where}: key {key!r} is not known for {kind.__name__}; {hint}")
    shipped = next((name for name, each in ARCHITECTURES.items() if each is kind), None)
    missing = [
        item.name
        for item in fields(kind)
        if item.name not in values and item.name != "name" and (shipped or not _has_default(item))
    ]
    if missing:
        remedy = f', or start from a shipped architecture: base = "{shipped}"' if shipped else ""
        raise ArchitectureError(f"{where}: {', '.join(missing)} not given for {kind.__name__}; give each{remedy}")
    try:
        return cast(Spec, _adapter(kind).validate_python(values))
    except ValidationError as error:
        problem = error.errors()[0]
        own = problem.get("ctx", {}).get("error")
        if isinstance(own, AcfError):  # what the Spec itself says about its values
            raise ArchitectureError(f"{where}: {own}") from error
        place = ".".join(str(part) for part in problem["loc"])
        raise ArchitectureError(
            f"{where}: {place} = {problem['input']!r}: {problem['msg']}; mend this value"
        ) from error
