"""The optional packages: which extra of the distribution brings each, and the line that installs it."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from acf.errors import MissingDependencyError

DISTRIBUTION = "adaptive-compute-fabric"
"""The name to install by; ``acf`` on PyPI is another project."""

EXTRAS: dict[str, str] = {
    "sklearn": "demo",
    "PIL": "data",
    "lightning": "adapters",
    "transformers": "adapters",
    "sacrebleu": "text",
    "tokenizers": "text",
    "optuna": "sweep",
    "ray": "ray",
    "ale_py": "rl",
    "gymnasium": "rl",
    "amaranth": "rtl",
    "pyosys": "rtl",
    "cocotb": "rtl-test",
    "find_libpython": "rtl-test",
}
"""The extra that brings a package, by the name under which the package is imported."""

DISPLAY_NAMES = {"sklearn": "scikit-learn", "PIL": "Pillow", "optuna": "Optuna", "ray": "Ray", "ale_py": "ale-py"}
"""What a package is called in messages, where that is not the name under which it is imported."""


def install_line(extra: str) -> str:
    """The command that installs an extra.

    >>> install_line("rl")
    "pip install 'adaptive-compute-fabric[rl]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def import_optional(module: str, needed_by: str) -> Any:
    """The module, or an error with the line that installs it; ``needed_by`` is the subject of "needs it"."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if find_spec(package) is None:
            raise _missing(package, needed_by) from error
        raise MissingDependencyError(
            f"{_display_name(package)} is installed but cannot be imported ({error}), and {needed_by} needs it; "
            f"install it again with: {install_line(EXTRAS[package])}"
        ) from error


def require(*packages: str, needed_by: str) -> None:
    """Refuse to go on without ``packages``; none of them is imported."""
    for package in packages:
        if find_spec(package) is None:
            raise _missing(package, needed_by)


def _missing(package: str, needed_by: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{_display_name(package)} is not installed and {needed_by} needs it; "
        f"install it with: {install_line(EXTRAS[package])}"
    )


def _display_name(package: str) -> str:
    return DISPLAY_NAMES.get(package, package)
