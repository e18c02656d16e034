"""Policies by name: those of the package, entry points of `acf.policies`, and ``module:Class``."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from acf.errors import PluginError, SparsityError
from acf.masks.policy import TopologyPolicy
from acf.plugins import POLICIES as GROUP
from acf.plugins import describe_plugin, import_object, is_reference, load_plugin, plugin_names


def find_policy(name: str, known: Mapping[str, type[TopologyPolicy]]) -> type[TopologyPolicy]:
    """The class of a policy: a name among ``known``, of a plug-in, or ``module:Class``."""
    if name in known:
        return known[name]
    if name in plugin_names(GROUP):
        where, found = describe_plugin(GROUP, name), load_plugin(GROUP, name)
    elif is_reference(name):
        where, found = name, import_object(name)
    else:
        names = ", ".join((*known, *plugin_names(GROUP)))
        raise SparsityError(f"policy {name!r} is not known; use one of {names}, or module:Class")
    if isinstance(found, type) and issubclass(found, TopologyPolicy):
        return found
    raise PluginError(f"{where} is no policy; let it be a subclass of acf.masks.TopologyPolicy")


def build_policy(kind: type[TopologyPolicy], **settings: Any) -> TopologyPolicy:
    """A policy of that class from those ``settings`` that are fields of it: a static one has no period."""
    own: set[str] = {item.name for item in fields(kind)} if is_dataclass(kind) else set()
    return kind(**{name: value for name, value in settings.items() if name in own})
