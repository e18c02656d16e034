"""The fabric's side: words loaded, the program run in a simulation of the gates, events and results read back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering import FabricShape, Program
from acf.rtl.fabric.bench import FabricBench
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.top import COUNTERS_CYCLES
from acf.rtl.fabric.words import Encoded, check_commands
from acf.rtl.flow.ports import split_bits
from acf.rtl.lockstep.model import Stalls
from acf.rtl.lockstep.output import assembled, result_values, sum_values
from acf.rtl.lockstep.record import EVENTS, Record
from acf.rtl.simulation import Simulation
from acf.sim.fabric.traffic import DRAIN, IMBALANCE, REASONS

Outputs = dict[str, NDArray[np.uint64]]

MANY_CLUSTERS = 16  # from here on a kind of cluster that is compiled once is ready sooner, and calls to it cost little


def cluster_blocks(shape: FabricShape) -> list[str]:
    """Modules of a fabric that are better compiled once: the kinds of clusters, where there are many."""
    if shape.clusters < MANY_CLUSTERS:
        return []
    return ["first_cluster", "cluster"] if shape.mesh_rows > 1 else ["first_cluster"]


@dataclass(frozen=True, eq=False)
class FabricSimulation:
    """A fabric of ``sizes`` in simulation; runs one program after the other, each from the initial state."""

    sizes: FabricSizes
    simulation: Simulation

    @classmethod
    def of(cls, sizes: FabricSizes, backend: str = "auto", optimise: str = "-O1") -> "FabricSimulation":
        """Build the fabric for a backend of `Simulation`; of many clusters, each kind is compiled once."""
        return cls(sizes, Simulation(FabricBench(sizes), backend, optimise, cluster_blocks(sizes.shape)))

    def run(self, program: Program, encoded: Encoded, stalls: Stalls, cycles: int, shape: tuple[int, int]) -> Record:
        """Run ``program``, which takes ``cycles`` on the model; ``shape`` is that of serial rows x parallel columns."""
        check_commands(encoded, self.sizes)
        self.simulation.restart()
        self.simulation.run(self._load(program, encoded, stalls))
        held = {
            "reduces": int(program.reduces),
            "edge_cycles": encoded.edge_cycles,
            "outside_cycles": stalls.latency_cycles,
        }
        steps = cycles + self.margin
        outputs = self.simulation.run({"run": 1, **held}, steps)
        if not int(outputs["is_done"][-1]):
            raise RtlError(f"the fabric is not done {self.margin} cycles after the model; compare their events")
        units = self.sizes.shape.scus
        counted = self.simulation.run({"counted_unit": np.repeat(np.arange(units), COUNTERS_CYCLES + 1), **held})
        events = self._events(outputs, program)
        last = slice(COUNTERS_CYCLES, None, COUNTERS_CYCLES + 1)  # when all counters of a unit are there
        counters = np.stack([counted[name][last].astype(np.int64) for name in (*REASONS, "idle")], axis=1)
        total, unit_cycles = self._close_counters(counters, events, program, steps)
        return Record(total, events, unit_cycles, self._output(outputs, program, encoded, shape))

    @property
    def margin(self) -> int:
        """Cycles by which the last results are at the edges after the model has ended."""
        shape = self.sizes.shape
        hops = shape.hop_cycles * (shape.mesh_rows + shape.mesh_columns + 2)
        return self.sizes.datapath_delay + hops + 2 * shape.result_flit_cycles + 2 * shape.sum_flit_cycles + 8

    def _load(self, program: Program, encoded: Encoded, stalls: Stalls) -> dict[str, NDArray[np.uint64]]:
        """Inputs that write all words, one a cycle."""
        fabric = self.simulation
        widths = {port.name: port.words for port in fabric.inputs}
        writes: list[tuple[str, int, int, int]] = []  # port that selects, line, address, word
        for line, (commands, flits) in enumerate(zip(encoded.commands, encoded.flits, strict=True)):
            writes += [("load", line, address, word) for address, word in enumerate(commands)]
            writes += [("load_flit", line, address, word) for address, word in enumerate(flits)]
            writes.append(("load_count", line, len(commands), 0))
            if line < self.sizes.shape.mesh_rows:
                ticks = stalls.ticks[program.rows.first[line] : program.rows.first[line + 1]]
                writes += [("load_ticks", line, address, int(word)) for address, word in enumerate(ticks)]
        cycles = len(writes) + 2
        inputs = {
            name: np.zeros((cycles, widths[name]), dtype=np.uint64)
            for name in ("load", "load_flit", "load_count", "load_ticks", "load_address", "load_word", "load_data")
        }
        for cycle, (select, line, address, word) in enumerate(writes):
            inputs[select][cycle, line // 64] = 1 << line % 64
            inputs["load_address"][cycle] = address
            data = inputs["load_word" if select == "load" else "load_data"][cycle]
            for part in range(data.size):
                data[part] = word >> 64 * part & 0xFFFFFFFFFFFFFFFF
        return inputs

    def _events(self, outputs: Outputs, program: Program) -> dict[str, list[list[int]]]:
        """Cycles of every event; arrivals, ends and empty banks count from the cycle after."""
        shape = self.sizes.shape
        counts = {"line": shape.mesh_rows + shape.mesh_columns, "cluster": shape.clusters, "unit": shape.scus}
        ports = {
            "send": ("sends", 0),
            "serial_arrival": ("serial_arrives", 1),
            "parallel_arrival": ("parallel_arrives", 1),
            "begin": ("begins", 0),
            "end": ("ends", 1),
            "leave": ("leaves", 0),
            "empty": ("empties", 1),
        }
        events = {}
        for name, kind in EVENTS.items():
            port, later = ports[name]
            bits = split_bits(outputs[port], 1, counts[kind])
            if name == "leave" and program.reduces:
                bits = np.tile(split_bits(outputs["sums_start"], 1, shape.mesh_columns), (1, shape.mesh_rows))
            events[name] = [(np.flatnonzero(bits[:, place]) + later).tolist() for place in range(counts[kind])]
        return events

    def _close_counters(
        self, counters: NDArray[np.int64], events: dict[str, list[list[int]]], program: Program, steps: int
    ) -> tuple[int, NDArray[np.int64]]:
        """Cycles of the program, and the wait at its end put down as the simulator does."""
        shape = self.sizes.shape
        finished = steps - counters[:, -1]
        latest = end = int(finished.max())
        for cluster, times in enumerate(events["empty"]):
            home = 0 if program.reduces else shape.hop_cycles * (cluster % shape.mesh_columns + 1)
            end = max(end, times[-1] + home if times else 0)
        unit_cycles = counters[:, :-1].copy()
        unit_cycles[:, IMBALANCE] += latest - finished
        unit_cycles[:, DRAIN] += end - latest
        return end, unit_cycles

    def _output(
        self, outputs: Outputs, program: Program, encoded: Encoded, shape: tuple[int, int]
    ) -> NDArray[np.uint32]:
        streams = self._sums(outputs) if program.reduces else self._results(outputs)
        return assembled(self.sizes, program, encoded, streams, shape)

    def _results(self, outputs: Outputs) -> list[NDArray[np.float32]]:
        """Values that left each cluster, in their order."""
        shape = self.sizes.shape
        column_bits = max(1, (shape.mesh_columns - 1).bit_length())
        column_of = split_bits(outputs["result_column"], column_bits, shape.mesh_rows)
        valid = split_bits(outputs["result_valid"], 1, shape.mesh_rows)
        words = outputs["result"].reshape(len(valid), shape.mesh_rows, -1)
        streams = []
        for row in range(shape.mesh_rows):
            for column in range(shape.mesh_columns):
                cycles = np.flatnonzero((valid[:, row] == 1) & (column_of[:, row] == column))
                streams.append(result_values(np.ascontiguousarray(words[cycles, row]).tobytes()))
        return streams

    def _sums(self, outputs: Outputs) -> list[NDArray[np.float32]]:
        """Partial sums that left each mesh column, in their order."""
        columns = self.sizes.shape.mesh_columns
        valid = split_bits(outputs["sum_valid"], 1, columns)
        words = outputs["sum"].reshape(len(valid), columns, -1)
        return [
            sum_values(np.ascontiguousarray(words[valid[:, column] == 1, column]).tobytes())
            for column in range(columns)
        ]
