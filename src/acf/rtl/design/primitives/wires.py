"""Wiring the ports of a submodule to those of the component around it."""

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Signature


def forward(m: Module, outer: Any, inner: Any, names: Iterable[str] | None = None) -> None:
    """Connect ports of ``inner`` with the members of ``outer`` that have the same names, each in its own direction.

    Both are components or interfaces; arrays and nested interfaces are connected element by element. ``names``: the
    ports to connect, all of ``inner`` where it is None.
    """
    members = inner.signature.members
    forwarded = Signature({name: members[name] for name in (members if names is None else names)})
    for path, member, value in forwarded.flatten(inner):
        peer = outer
        for part in path:
            peer = peer[part] if isinstance(part, int) else getattr(peer, part)
        m.d.comb += value.eq(peer) if member.flow == In else peer.eq(value)
