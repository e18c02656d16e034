"""Modules that occur often in a design: converted once, instantiated as often as needed.

Amaranth elaborates every instance anew; a fabric of 64 equal clusters would take minutes. While a design is converted
to RTLIL, `place` makes all instances refer to one module. In Amaranth's simulator they are plain submodules.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from acf.rtl.design.primitives.ports import convert_component, ports_of

_PARTS: ContextVar[dict[str, str] | None] = ContextVar("parts", default=None)


@contextmanager
def separate_parts() -> Iterator[dict[str, str]]:
    """Within this context `place` converts each module once; yields their RTLIL by name, inner ones first."""
    parts: dict[str, str] = {}
    token = _PARTS.set(parts)
    try:
        yield parts
    finally:
        _PARTS.reset(token)


def place(m: Any, name: str, component: Any, module: str, reset: Any = None) -> Any:
    """Add ``component`` to ``m`` as ``name``; every component with the same ``module`` name must be the same design.

    Where ``reset`` is 1 the component is reset, as by the global reset.
    """
    from amaranth.hdl import ClockSignal, Instance, ResetInserter, ResetSignal

    parts = _PARTS.get()
    if parts is None:
        m.submodules[name] = component if reset is None else ResetInserter(reset)(component)
        return component

    ports = {f"{'i' if port.is_input else 'o'}_{port.name}": port.signal for port in ports_of(component)}
    if module not in parts:
        parts[module] = convert_component(component, module).replace("attribute \\top 1\n", "")
    component._MustUse__used = True  # its ports are, and one like it has been elaborated
    head = parts[module].rsplit(f"\nmodule \\{module}\n", 1)[1]
    resets = ResetSignal() if reset is None else ResetSignal() | reset
    for wire, signal in (("clk", ClockSignal()), ("rst", resets)):
        if f" \\{wire}\n" in head.partition("\n  cell ")[0].partition("\n  process ")[0]:
            ports[f"i_{wire}"] = signal
    m.submodules[name] = Instance(module, **ports)
    return component
