"""Counts what the datapath of an SCU switches and clocks in gates, for docs/results/energy-synthesis.json.

    python docs/figures/scu_toggles.py acf-512-lean

Yosys maps the datapath to simple gates with gated clocks; a levelised simulation without delays, as Verilator's, plays
operations in the walker's order and with the port's delays on it, and weighs every toggle by the gate inputs that it
loads. Multipliers and adders compute, but are not counted. Printed: per cycle of work, for serial tiles without zeros
and with half of them zeros; of clock nets all loads, as in `acf rtl power`, halved: pins that are clocked in a cycle.
"""

import json
import re
import sys
from collections import Counter, deque
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

import acf.sim
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.cluster import DATAPATHS
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.tools.gate_mapping import CLOCK_GATE, gate_commands, memory_bits
from acf.rtl.tools.hierarchy import split_modules
from acf.rtl.tools.verilog import to_rtlil
from acf.rtl.tools.yosys import run_yosys

CYCLES, SKIPPED = 500, 60
"""Operations of a run, and those before the count begins."""
FETCH_CYCLES, ROW_CYCLES = 4, 3
"""From an operation to its value, and to its row of the block."""
COMBINATIONAL = {"$_AND_": 0, "$_OR_": 1, "$_XOR_": 2, "$_MUX_": 3, "$_NOT_": 4, "$_DLATCH_P_": 5, "$_DLATCH_N_": 6}
INPUTS = {"$_MUX_": "ABS", "$_NOT_": "A", "$_DLATCH_P_": "DE", "$_DLATCH_N_": "DE"}
ARITHMETIC = re.compile(r"(adder|multiplier)_\d+\.")


def net(bit: int | str) -> int:
    """The number of a net: 0 and 1 are the constants."""
    return bit + 2 if isinstance(bit, int) else int(bit == "1")


def netlist_of(sizes: FabricSizes) -> dict[str, Any]:
    rtlil = to_rtlil(DATAPATHS[sizes.shape.accumulate_in](sizes), "top")
    memories = [(name, memory) for name, text in split_modules(rtlil).items() for memory in memory_bits(text)]
    commands = [
        *gate_commands("top", memories, None, True),
        "flatten -noscopeinfo",
        "opt_clean",
        "write_json gates.json",
    ]
    files = run_yosys(commands, {"top.il": rtlil, "clock_gate.v": CLOCK_GATE}, ["gates.json"]).files
    return json.loads(files["gates.json"])["modules"]["top"]


class Memory:
    """A macro of one read and one write port; a word that is read and written at once is read as it was."""

    def __init__(self, cell: dict[str, Any]) -> None:
        nets = {name: np.array([net(bit) for bit in bits]) for name, bits in cell["connections"].items()}
        self.read, self.read_at, self.reads = nets["RD_DATA"], nets["RD_ADDR"], nets["RD_EN"][0]
        self.write, self.write_at, self.writes = nets["WR_DATA"], nets["WR_ADDR"], nets["WR_EN"][0]
        self.words = np.zeros((int(cell["parameters"]["SIZE"], 2), len(self.read)), dtype=np.int8)

    def clock(self, before: NDArray[np.int8], values: NDArray[np.int8]) -> None:
        def word(nets: NDArray[np.int64]) -> int:
            return int(before[nets] @ (1 << np.arange(len(nets)))) % len(self.words)

        if before[self.reads]:
            values[self.read] = self.words[word(self.read_at)]
        if before[self.writes]:
            self.words[word(self.write_at)] = before[self.write]


class Gates:
    """The datapath as gates in order of dependence, its flip-flops and memories, and what loads every net."""

    def __init__(self, module: dict[str, Any]) -> None:
        gates, flip_flops = [], []
        self.memories = [Memory(cell) for cell in module["cells"].values() if cell["type"] == "$mem_v2"]
        self.loads: Counter[int] = Counter()
        self.clock_nets: set[int] = set()
        for name, cell in module["cells"].items():
            kind, pins = cell["type"], {pin: net(bits[0]) for pin, bits in cell["connections"].items()}
            if kind == "$mem_v2":
                continue
            clock = pins.get("C" if kind == "$_DFF_P_" else "E")
            inputs = [pins[pin] for pin in ("DC" if kind == "$_DFF_P_" else INPUTS.get(kind, "AB"))]
            if kind == "$_DFF_P_":
                flip_flops.append((pins["C"], pins["D"], pins["Q"]))
            else:
                out = pins["Q" if "Q" in pins else "Y"]
                gates.append((COMBINATIONAL[kind], *inputs, *[0] * (3 - len(inputs)), out))
            if not ARITHMETIC.search(name):
                self.loads.update(inputs)
                self.clock_nets |= set() if clock is None else {clock}
        self.flip_flops = np.array(flip_flops)
        self.gates = _in_order(np.array(gates))
        self.ports = {name: [net(bit) for bit in port["bits"]] for name, port in module["ports"].items()}
        every = [bit for cell in module["cells"].values() for bits in cell["connections"].values() for bit in bits]
        self.nets = 3 + max(bit for bit in every if isinstance(bit, int))


def _in_order(gates: NDArray[np.int64]) -> NDArray[np.int64]:
    driver = {int(out): place for place, out in enumerate(gates[:, 4])}
    sources = [{driver[int(each)] for each in gate[1:4] if int(each) in driver} for gate in gates]
    followers: list[list[int]] = [[] for _ in gates]
    for place, found in enumerate(sources):
        for source in found:
            followers[source].append(place)
    left = [len(found) for found in sources]
    ready, order = deque(place for place, count in enumerate(left) if count == 0), []
    while ready:
        order.append(ready.popleft())
        for place in followers[order[-1]]:
            left[place] -= 1
            if left[place] == 0:
                ready.append(place)
    return gates[np.array(order)]


@numba.njit
def settle(gates: Any, values: Any) -> None:
    for place in range(gates.shape[0]):
        kind, a, b, out = gates[place, 0], values[gates[place, 1]], values[gates[place, 2]], gates[place, 4]
        if kind == 0:
            values[out] = a & b
        elif kind == 1:
            values[out] = a | b
        elif kind == 2:
            values[out] = a ^ b
        elif kind == 3:
            values[out] = b if values[gates[place, 3]] else a
        elif kind == 4:
            values[out] = 1 - a
        elif (kind == 5) == (b == 1):
            values[out] = a


def operations(sizes: FabricSizes, zeros: float, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Operations in the walker's order, two blocks a tile: fields, whether a row is asked for, which value."""
    rows, tile = sizes.scu_rows, sizes.shape.tile
    found: list[dict[str, Any]] = []
    number = 0
    while len(found) < CYCLES:
        there = rng.random((rows, tile)) >= zeros
        for block, row in np.ndindex(2, rows):
            walked = np.flatnonzero(there[row])[:: -1 if row % 2 else 1].tolist()
            for place, k in enumerate(walked):
                fields = {"valid": 1, "start": 1, "address": row + rows * (number % 4 * 2 + block), "k": k}
                fields |= {"first": place == 0, "last": place + 1 == len(walked)}
                found.append({"fields": fields, "asks": not there[:row, k].any(), "value": (number, row, k)})
        number += 1
    return found[:CYCLES]


class Play:
    """Operations on the gates, and toggles of every net after the first `SKIPPED` cycles."""

    def __init__(self, gates: Gates, sizes: FabricSizes, zeros: float) -> None:
        self.gates, self.sizes, self.rng = gates, sizes, np.random.default_rng(0)
        self.operations = operations(sizes, zeros, self.rng)
        self.values = np.zeros(gates.nets, dtype=np.int8)
        self.values[1] = 1
        self.before = self.values.copy()
        self.toggles = np.zeros(gates.nets, dtype=np.int64)
        self.row = self.value = 0
        self.known: dict[Any, int] = {}

    def run(self) -> "Play":
        for cycle in range(-3, len(self.operations)):
            sampled = self.values.copy()
            self._set("clk", 1)
            settle(self.gates.gates, self.values)
            clock, data, out = self.gates.flip_flops.T
            rises = (self.values[clock] == 1) & (sampled[clock] == 0)
            self.values[out[rises]] = sampled[data[rises]]
            for memory in self.gates.memories:
                memory.clock(sampled, self.values)
            self._drive(cycle)  # walker and port change with the clock, as the datapath does
            self._phase(1, cycle)
            self._phase(0, cycle)
        return self

    def _phase(self, clock: int, cycle: int) -> None:
        self._set("clk", clock)
        settle(self.gates.gates, self.values)
        if cycle >= SKIPPED:
            self.toggles += self.values != self.before
        self.before[:] = self.values

    def _drive(self, cycle: int) -> None:
        sizes, now = self.sizes, {field: place.offset for field, place in self.sizes.operation}
        self._set("rst", int(cycle < 0))
        fields = self.operations[cycle]["fields"] if cycle >= 0 else {}
        self._set("operation", sum(int(value) << now[name] for name, value in fields.items()))
        at_row, at_value = cycle - ROW_CYCLES, cycle - FETCH_CYCLES
        fresh = at_row >= 0 and self.operations[at_row]["asks"]
        if fresh:
            self.row = self._random(sizes.shape.tile)
        if at_value >= 0:
            self.value = self.known.setdefault(self.operations[at_value]["value"], self._random(1))
        place = {field: each.offset for field, each in sizes.fetched}
        parts = {"row": self.row, "value": self.value, "mask": (1 << sizes.shape.tile) - 1}
        self._set("fetched", sum(value << place[name] for name, value in parts.items()))
        self._set("fetched_fresh", int(fresh))
        self._set("fetched_valid", int(at_value >= 0))

    def _random(self, count: int) -> int:
        numbers = bf16_bits(self.rng.standard_normal(count)).tolist()
        return sum(number << 16 * place for place, number in enumerate(numbers))

    def _set(self, port: str, number: int) -> None:
        for place, each in enumerate(self.gates.ports[port]):
            self.values[each] = number >> place & 1


def main(name: str) -> None:
    sizes = FabricSizes(acf.sim.spec(name), products=False)
    gates = Gates(netlist_of(sizes))
    for zeros in (0.0, 0.5):
        toggles = Play(gates, sizes, zeros).run().toggles / (CYCLES - SKIPPED)
        weighed = {each: toggles[each] * load for each, load in gates.loads.items() if each > 1}
        clocks = sum(value for each, value in weighed.items() if each in gates.clock_nets)
        switched = sum(weighed.values()) - clocks
        print(json.dumps({"config": name, "zeros": zeros, "clocks": round(clocks, 1), "switched": round(switched, 1)}))


if __name__ == "__main__":
    main(sys.argv[1])
