"""The gates' side of a lockstep run: load the words, run the program in simulation, read events and results back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering import FabricShape, Program
from acf.rtl.design.fabric.decoding import assemble_output, result_values, sum_values
from acf.rtl.design.fabric.encoding import EncodedProgram, check_commands
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.top import COUNTERS_CYCLES
from acf.rtl.tools.port_arrays import split_bits
from acf.rtl.tools.simulation import Simulation
from acf.rtl.verify.benches.fabric_bench import FabricBench
from acf.rtl.verify.lockstep.model import Stalls
from acf.rtl.verify.lockstep.record import EVENTS, Record, places_of
from acf.sim.fabric.traffic import DRAIN, IMBALANCE, REASONS

Outputs = dict[str, NDArray[np.uint64]]

MANY_CLUSTERS = 16  # from here on compiling each kind of cluster once saves more time than the calls cost


def cluster_blocks(shape: FabricShape) -> list[str]:
    """Modules of a fabric to compile once for all instances: the kinds of clusters, where there are many."""
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

    def run(self, encoded: EncodedProgram, stalls: Stalls, cycles: int) -> Record:
        """Run a program that takes ``cycles`` on the model."""
        check_commands(encoded)
        program = encoded.program
        self.simulation.restart()
        self.simulation.run(self._load(encoded, stalls))
        held = {
            "reduces": int(program.reduces),
            "edge_cycles": encoded.edge_cycles,
            "outside_cycles": stalls.latency_cycles,
        }
        steps = cycles + self.margin
        outputs = self.simulation.run({"run": 1, **held}, steps)
        if not int(outputs["is_done"][-1]):
            raise RtlError(f"the fabric is not done {self.margin} cycles after the model; compare their events")
        events, output = self._events(outputs, program), self._output(outputs, encoded)
        if not self.has_counters:
            ended = [max(times, default=0) for times in events["end"]]
            return Record(self._end(max(ended), events, program), events, None, output, self._awake(outputs))
        scus = np.arange(self.sizes.shape.scus)
        counted = self.simulation.run({"counted_scu": np.repeat(scus, COUNTERS_CYCLES + 1), **held})
        last = slice(COUNTERS_CYCLES, None, COUNTERS_CYCLES + 1)  # when all counters of an SCU are valid
        counters = np.stack([counted[name][last].astype(np.int64) for name in (*REASONS, "idle")], axis=1)
        total, scu_cycles = self._close_counters(counters, events, program, steps)
        return Record(total, events, scu_cycles, output, self._awake(outputs))

    @property
    def has_counters(self) -> bool:
        """Whether the SCUs count their cycles by reason."""
        return any(port.name == "counted_scu" for port in self.simulation.inputs)

    @property
    def margin(self) -> int:
        """Cycles by which the last results are at the edges after the model has ended."""
        shape = self.sizes.shape
        hops = shape.hop_cycles * (shape.mesh_rows + shape.mesh_columns + 2)
        return self.sizes.datapath_delay + hops + 2 * shape.result_flit_cycles + 2 * shape.sum_flit_cycles + 8

    def _load(self, encoded: EncodedProgram, stalls: Stalls) -> dict[str, NDArray[np.uint64]]:
        """Inputs that write all words, one a cycle."""
        first = encoded.program.rows.first
        widths = {port.name: port.words for port in self.simulation.inputs}
        writes: list[tuple[str, int, int, int]] = []  # port that selects, line, address, word
        for line, (commands, flits) in enumerate(zip(encoded.commands, encoded.flits, strict=True)):
            writes += [("load", line, address, word) for address, word in enumerate(commands)]
            writes += [("load_flit", line, address, word) for address, word in enumerate(flits)]
            writes.append(("load_count", line, len(commands), 0))
            if line < self.sizes.shape.mesh_rows:
                ticks = stalls.ticks[first[line] : first[line + 1]]
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
        counts = places_of(shape)
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

    def _awake(self, outputs: Outputs) -> dict[str, list[int]]:
        """Cycles in which every unit was clocked, by kind of place; empty without clock gates."""
        if not self.sizes.gates_units:
            return {}
        ports = {"line": "awake_lines", "cluster": "awake_clusters", "SCU": "awake_scus"}
        counts = places_of(self.sizes.shape)
        found = {kind: split_bits(outputs[port], 1, counts[kind]) for kind, port in ports.items()}
        return {kind: bits.sum(axis=0, dtype=np.int64).tolist() for kind, bits in found.items()}

    def _close_counters(
        self, counters: NDArray[np.int64], events: dict[str, list[list[int]]], program: Program, steps: int
    ) -> tuple[int, NDArray[np.int64]]:
        """Cycles of the program, and the wait at its end attributed as the simulator does."""
        finished = steps - counters[:, -1]
        latest = int(finished.max())
        end = self._end(latest, events, program)
        scu_cycles = counters[:, :-1].copy()
        scu_cycles[:, IMBALANCE] += latest - finished
        scu_cycles[:, DRAIN] += end - latest
        return end, scu_cycles

    def _end(self, latest: int, events: dict[str, list[list[int]]], program: Program) -> int:
        """The cycle in which all results are at the edges; the last SCU has ended its last tile in ``latest``."""
        shape = self.sizes.shape
        for cluster, times in enumerate(events["empty"]):
            home = 0 if program.reduces else shape.hop_cycles * (cluster % shape.mesh_columns + 1)
            latest = max(latest, times[-1] + home if times else 0)
        return latest

    def _output(self, outputs: Outputs, encoded: EncodedProgram) -> NDArray[np.uint32]:
        streams = self._sums(outputs) if encoded.program.reduces else self._results(outputs)
        return assemble_output(encoded, streams)

    def _results(self, outputs: Outputs) -> list[NDArray[np.float32]]:
        """Values that left each cluster, in order."""
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
        """Partial sums that left each mesh column, in order."""
        columns = self.sizes.shape.mesh_columns
        valid = split_bits(outputs["sum_valid"], 1, columns)
        words = outputs["sum"].reshape(len(valid), columns, -1)
        return [
            sum_values(np.ascontiguousarray(words[valid[:, column] == 1, column]).tobytes())
            for column in range(columns)
        ]
