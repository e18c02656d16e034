"""The model's side of a lockstep run: the simulator's stepped engine, and its log as events."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering import SERIAL, Stream
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.verify.lockstep.record import EVENTS, Record, places_of
from acf.rtl.verify.lockstep.reference_output import ordered_output
from acf.sim.fabric.event_log import EventLog
from acf.sim.fabric.stepper import step_and_log
from acf.sim.fabric.traffic import REASONS, Timing, Traffic


@dataclass(frozen=True, eq=False)
class Stalls:
    """Row packets from outside the chip: DRAM time in 1/65536 cycles by packet, and ``latency_cycles`` on top."""

    ticks: NDArray[np.int64]
    latency_cycles: int


def run_model(encoded: EncodedProgram, stalls: Stalls) -> Record:
    """Play and compute a program as the fabric does."""
    program, shape = encoded.program, encoded.sizes.shape
    scu_cycles = np.zeros((shape.scus, len(REASONS)), dtype=np.int64)
    log = EventLog.of(program, shape)
    traffic, timing = Traffic.of(program, stalls.ticks), Timing.of(shape, stalls.latency_cycles)
    cycles = step_and_log(traffic, timing, scu_cycles, log)
    return Record(int(cycles), _LoggedEvents(encoded, log).read(), scu_cycles, ordered_output(encoded))


class _LoggedEvents:
    """Turns an engine's log into cycles by event and place."""

    def __init__(self, encoded: EncodedProgram, log: EventLog) -> None:
        self.program, self.shape, self.log = encoded.program, encoded.sizes.shape, log
        counts = places_of(self.shape)
        self.events: dict[str, list[list[int]]] = {
            name: [[] for _ in range(counts[kind])] for name, kind in EVENTS.items()
        }

    def read(self) -> dict[str, list[list[int]]]:
        """All events, by name and place."""
        for line in range(self.shape.mesh_rows):
            self._packets(self.program.rows, line, is_row=True)
        for line in range(self.shape.mesh_columns):
            self._packets(self.program.columns, line, is_row=False)
        for number in range(self.program.rounds):
            for cluster in range(self.shape.clusters):
                self._drain(number, cluster)
        return self.events

    def _packets(self, stream: Stream, line: int, is_row: bool) -> None:
        """Packets of a line as they are sent and as they arrive at each of their destinations."""
        shape, columns = self.shape, self.shape.mesh_columns
        offset = 0 if is_row else self.program.rows.packets
        for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
            sent = int(self.log.sent_at[offset + packet])
            self.events["send"][line if is_row else shape.mesh_rows + line].append(sent)
            for place in range(columns if is_row else shape.mesh_rows):
                if not (int(stream.destinations[packet]) >> place) & 1:
                    continue
                cluster = line * columns + place if is_row else place * columns + line
                arrival = sent + int(stream.flits[packet]) + shape.hop_cycles * (place + 1)
                is_serial = stream.kind[packet] == SERIAL
                self.events["serial_arrival" if is_serial else "parallel_arrival"][cluster].append(arrival)
                if is_serial:
                    self._work(packet, place, cluster)

    def _work(self, packet: int, place: int, cluster: int) -> None:
        """When each SCU of a cluster begins and ends a serial tile."""
        rows, scus = self.program.rows, self.shape.scus_per_cluster
        nearer = int(rows.destinations[packet]) & ((1 << place) - 1)
        item = int(rows.item_first[packet]) + nearer.bit_count()
        for scu in range(scus):
            begun = int(self.log.begun_at[packet, place, scu])
            cost = max(1, int(rows.item_cycles[item, scu]))
            self.events["begin"][cluster * scus + scu].append(begun)
            self.events["end"][cluster * scus + scu].append(begun + cost)

    def _drain(self, number: int, cluster: int) -> None:
        """When the flits of a round leave a cluster, and when its bank is empty."""
        shape, program = self.shape, self.program
        first, emptied = int(self.log.first_left[number, cluster]), int(self.log.emptied_at[number, cluster])
        if emptied < 0:
            return
        self.events["empty"][cluster].append(emptied)
        if program.reduces:
            stride = shape.sum_flit_cycles * program.split
            flits = int(program.round_flits[number, 0, cluster % shape.mesh_columns]) // program.split
            self.events["leave"][cluster] += [first + flit * stride for flit in range(flits)]
        else:
            last = int(self.log.last_left[number, cluster])
            self.events["leave"][cluster] += list(range(first, last + 1, shape.result_period_cycles))
