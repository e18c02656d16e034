"""Extensions from outside the package: entry points of installed distributions, and objects named ``module:name``.

Nothing is imported before its name is used, so an extension that fails breaks no other name.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from acf.errors import PluginError

ARCHITECTURES = "acf.architectures"
"""Entry points of machines: each loads a Spec, a Spec class whose fields all have defaults, or the path of a TOML."""

POLICIES = "acf.policies"
"""Entry points of topology policies: each loads a subclass of `acf.masks.TopologyPolicy`."""

COSTS = "acf.costs"
"""Entry points of DRAM energies: each loads an `acf.cost.Figure` in pJ per bit, and its name is a ``dram_kind``."""


def plugin_names(group: str) -> tuple[str, ...]:
    """Names of the extensions that installed distributions register in ``group``, sorted."""
    return tuple(sorted({point.name for point in _points(group)}))


def describe_plugin(group: str, name: str) -> str:
    """Where an extension comes from: its name, its distributions and what they load."""
    points = [point for point in _points(group) if point.name == name]
    sources = ", ".join(f"{point.value} of distribution {_distribution(point)}" for point in points)
    return f"plug-in {name!r} of {group} ({sources})"


def load_plugin(group: str, name: str) -> Any:
    """What the extension loads; an error in it is raised as `PluginError` that names extension and distribution."""
    points = [point for point in _points(group) if point.name == name]
    where = describe_plugin(group, name)
    if len({point.value for point in points}) > 1:
        raise PluginError(f"{where} is registered more than once; uninstall all but one of these distributions")
    try:
        return points[0].load()
    except Exception as error:  # whatever a stranger's module raises on import
        raise PluginError(
            f"{where} cannot be loaded ({type(error).__name__}: {error}); mend or uninstall that distribution"
        ) from error


def is_reference(text: str) -> bool:
    """Whether a text has the form ``module:name``.

    >>> is_reference("my_machines:Wide"), is_reference("acf-512"), is_reference("c:/trace.toml")
    (True, False, False)
    """
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def import_object(reference: str) -> Any:
    """The object that ``module:name`` names; the module is installed, or lies in the current folder.

    >>> import_object("math:tau") > 6
    True
    """
    if not is_reference(reference):
        raise PluginError(f"{reference!r} is not module:name; name a module and what is in it")
    module_name, _, names = reference.partition(":")
    package = module_name.partition(".")[0]
    if "" not in sys.path and PathFinder.find_spec(package, [str(Path.cwd())]) is not None:
        # Last, so that no file there hides an installed module; left there, since the module may import its neighbours.
        sys.path.append("")
    try:
        found = import_module(module_name)
        for name in names.split("."):
            found = getattr(found, name)
    except Exception as error:  # whatever a stranger's module raises on import
        raise PluginError(
            f"{reference!r} cannot be imported ({type(error).__name__}: {error}); name a module and what is in it"
        ) from error
    return found


@cache
def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
