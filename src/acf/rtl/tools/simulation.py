"""Simulation of a component in batches of cycles, compiled by Verilator or in Amaranth's own simulator."""

import ctypes
import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import finalize

import numpy as np
from numpy.typing import ArrayLike

from acf.errors import RtlError
from acf.extras import require
from acf.rtl.design.primitives.ports import Port, ports_of
from acf.rtl.tools.harness import harness_text
from acf.rtl.tools.port_arrays import Words, columns_of, pack_inputs, unpack_values
from acf.rtl.tools.verilator import VerilatorUnavailableError, load_model
from acf.rtl.tools.verilog import to_rtlil, verilog_of


class SlowSimulationWarning(UserWarning):
    """Components run in Amaranth's own simulator, because none can be compiled here."""


class Backend(Protocol):
    """Runs batches; registers keep their state from one to the next."""

    def run(self, inputs: Words, outputs: Words) -> None:
        """Drive ``inputs [cycles, words]`` and fill ``outputs [cycles, words]``."""

    def restart(self) -> None:
        """Go back to the initial state."""


class Simulation:
    """A component in simulation, from its initial state.

    In every cycle the inputs are driven, the outputs are read once logic has settled, and then the clock rises.
    ``backend`` is "verilator" (compiled), "pysim" (Amaranth's simulator: slow, pip alone) or "auto": compiled, and
    where there is no Verilator or no C++ compiler Amaranth's, with one notice. ``optimise`` is the C++ compiler's flag;
    ``blocks`` are modules that are compiled once for all of their instances.

    >>> from acf.rtl.design.arithmetic.multiply import Bf16Multiplier
    >>> Simulation(Bf16Multiplier(), backend="pysim").run({"a": [0x4040], "b": [0xC000]})["product"].tolist()
    [3233808384]
    """

    def __init__(
        self, component: Any, backend: str = "auto", optimise: str = "-O1", blocks: Sequence[str] = ()
    ) -> None:
        require("amaranth", needed_by="the RTL flow")
        if backend not in BACKENDS:
            raise RtlError(f"backend {backend!r} is not one of {', '.join(BACKENDS)}; use one of these names")
        self.ports = ports_of(component)
        self.inputs = [port for port in self.ports if port.is_input]
        self.outputs = [port for port in self.ports if not port.is_input]
        self.backend = backend
        self._runner = self._make(component, optimise, blocks)

    def _make(self, component: Any, optimise: str, blocks: Sequence[str]) -> Backend:
        if self.backend == "pysim":
            return PySimBackend(component, self.inputs, self.outputs)
        try:
            runner = VerilatorBackend(component, self.ports, optimise, blocks)
        except VerilatorUnavailableError as error:
            if self.backend == "verilator":
                raise
            _notice_once(str(error))
            self.backend = "pysim"
            return PySimBackend(component, self.inputs, self.outputs)
        self.backend = "verilator"
        return runner

    def restart(self) -> None:
        """Go back to the initial state."""
        self._runner.restart()

    def run(self, inputs: Mapping[str, ArrayLike], cycles: int | None = None) -> dict[str, Words]:
        """Run as many cycles as the longest input has, or ``cycles``, and give every output of every cycle.

        Inputs and outputs are named like the ports; integers ``[cycles]`` or one for all cycles, and for ports of more
        than 64 bits ``[cycles, words]`` of 64 bits. Inputs that are not named are 0. State is kept for the next call.
        """
        if cycles is None:
            cycles = max((len(value) for value in map(np.asarray, inputs.values()) if value.ndim), default=1)
        if not isinstance(cycles, int | np.integer) or isinstance(cycles, bool) or cycles < 0:
            raise RtlError(f"cycles {cycles!r} is no count; pass an integer, or None for those of the longest input")
        driven = pack_inputs(self.inputs, inputs, cycles)
        read = np.zeros((cycles, columns_of(self.outputs)), dtype=np.uint64)
        self._runner.run(driven, read)
        return self._named(read)

    def _named(self, words: Words) -> dict[str, Words]:
        found, column = {}, 0
        for port in self.outputs:
            found[port.name] = unpack_values(words[:, column : column + port.words])
            column += port.words
        return found


class VerilatorBackend:
    """The component compiled to a library; ``saif`` makes it able to record how often signals toggle."""

    def __init__(self, component: Any, ports: list[Port], optimise: str = "-O1", blocks: Sequence[str] = ()) -> None:
        rtlil = to_rtlil(component, "top")
        self._start(verilog_of(rtlil), ports, is_clocked(rtlil), optimise, saif=False, blocks=blocks)

    @classmethod
    def of_verilog(cls, verilog: str, ports: list[Port], clocked: bool, optimise: str = "-O1") -> "VerilatorBackend":
        """A backend over gates whose top module is called ``top``; they are reset first and toggles can be recorded."""
        made = cls.__new__(cls)
        made._start(verilog, ports, clocked, optimise, saif=True)
        return made

    def _start(
        self, verilog: str, ports: list[Port], clocked: bool, optimise: str, saif: bool, blocks: Sequence[str] = ()
    ) -> None:
        harness = harness_text(ports, clocked, resets=saif)
        self._library = load_model(verilog, "top", harness, optimise, saif, tuple(blocks))
        self._library.acf_create.restype = ctypes.c_void_p
        self._open()

    def _open(self) -> None:
        self._handle = ctypes.c_void_p(self._library.acf_create())
        self._end = finalize(self, self._library.acf_destroy, self._handle)

    def restart(self) -> None:
        """Begin again with a new instance."""
        self._end()
        self._open()

    def run(self, inputs: Words, outputs: Words) -> None:
        """Drive ``inputs [cycles, words]`` and fill ``outputs [cycles, words]`` in one call."""
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (inputs, outputs))
        self._library.acf_run(self._handle, ctypes.c_int64(len(inputs)), *pointers)

    def record(self, path: Path | None) -> None:
        """Begin to write a SAIF file, or end it where ``path`` is None."""
        self._library.acf_trace(self._handle, None if path is None else str(path).encode())


class PySimBackend:
    """Amaranth's simulator; the clock is a signal that the test bench toggles, so a batch takes no simulated time."""

    def __init__(self, component: Any, inputs: list[Port], outputs: list[Port]) -> None:
        from amaranth.hdl import ClockDomain, Module
        from amaranth.sim import Simulator

        module = Module()
        module.domains.sync = self._domain = ClockDomain("sync", reset_less=False)
        module.submodules.component = component
        self._ports = inputs, outputs
        self._batch: tuple[Words, Words] | None = None
        self._simulator = Simulator(module)
        self._simulator.add_testbench(self._bench, background=True)
        self._simulator.advance()  # the bench begins, and waits for the first batch

    def run(self, inputs: Words, outputs: Words) -> None:
        """Drive ``inputs [cycles, words]`` and fill ``outputs [cycles, words]``."""
        self._batch = inputs, outputs
        self._simulator.advance()

    def restart(self) -> None:
        """Reset the simulator, unless nothing has run yet."""
        if self._batch is not None:
            self._batch = None
            self._simulator.reset()

    async def _bench(self, context: Any) -> None:
        while True:
            if self._batch is not None:
                for driven, read in zip(*self._batch, strict=True):
                    self._cycle(context, driven, read)
            await context.delay(1e-6)

    def _cycle(self, context: Any, driven: Words, read: Words) -> None:
        inputs, outputs = self._ports
        column = 0
        for port in inputs:
            context.set(port.signal, _join(driven[column : column + port.words]))
            column += port.words
        column = 0
        for port in outputs:
            value = context.get(port.signal) & ((1 << port.width) - 1)
            for word in range(port.words):
                read[column + word] = value >> 64 * word & 0xFFFFFFFFFFFFFFFF
            column += port.words
        context.set(self._domain.clk, 1)
        context.set(self._domain.clk, 0)


def is_clocked(rtlil: str) -> bool:
    """Whether the top module of RTLIL text has a clock input."""
    top = rtlil[rtlil.index("attribute \\top 1") :]
    return " \\clk\n" in top[: top.index("\nend")]


def _join(words: Words) -> int:
    return sum(int(word) << 64 * place for place, word in enumerate(words))


@functools.cache
def _notice_once(reason: str) -> None:
    """Say once per process, and per reason, that simulation is slow."""
    warnings.warn(
        f"acf: components run in Amaranth's simulator, a thousand times slower ({reason})",
        SlowSimulationWarning,
        stacklevel=5,
    )


BACKENDS = ("auto", "verilator", "pysim")
"""Where a component can run."""
