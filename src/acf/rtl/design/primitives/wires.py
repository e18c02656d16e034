"""Passing the ports of a component on to the one around it."""

from typing import Any

from amaranth.hdl import Module


def pass_on(m: Module, outer: Any, inner: Any, is_input: bool) -> None:
    """Connect a port of a component to the same port of one inside it; arrays and interfaces part by part."""
    if isinstance(outer, list):
        for one, other in zip(outer, inner, strict=True):
            pass_on(m, one, other, is_input)
    elif hasattr(outer, "signature"):
        for name in outer.signature.members:
            pass_on(m, getattr(outer, name), getattr(inner, name), is_input)
    else:
        m.d.comb += inner.eq(outer) if is_input else outer.eq(inner)
