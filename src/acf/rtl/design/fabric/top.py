"""The fabric: controllers at two edges, clusters, and the lines between them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.cluster import Cluster
from acf.rtl.design.fabric.controller import COUNT_BITS, Controller
from acf.rtl.design.fabric.counters import COUNTER_BITS, REASON_NUMBER_BITS
from acf.rtl.design.fabric.line import CreditLine, PacketLine, ResultLine, SumLine, turns
from acf.rtl.design.fabric.memory_port import memory_port
from acf.rtl.design.fabric.results import SumCollector
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import all_of, any_of, delayed, delayed_flit
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.sim.fabric.traffic import REASONS

COUNTERS_CYCLES = len(REASONS) + 2
"""Cycles from a change of ``counted_scu`` until all of its counters are at the ports."""


class Fabric(Component):
    """A mesh of clusters with a controller at the left of each row and at the top of each column.

    Lines are numbered rows first, then columns. Every line has its own port for commands and its own to memory.
    With ``refill`` command memories are rings, see `Controller`. Results of rows (bf16) and of columns (fp32 partial
    sums) leave at the edges. ``hold`` of a line is back-pressure: no more of its results leave their clusters, those in
    flight still arrive. One bit per line, cluster or SCU reports the events of every cycle. With ``counts`` SCUs count
    their cycles by reason, and the counters of ``counted_scu`` are valid `COUNTERS_CYCLES` later; by default they are
    there if the shape has them.
    """

    def __init__(self, sizes: FabricSizes, counts: bool | None = None) -> None:
        counts = sizes.counts_stalls if counts is None else counts
        self.sizes, self.counts = sizes, counts
        shape = sizes.shape
        lines, clusters, scus = shape.mesh_rows + shape.mesh_columns, shape.clusters, shape.scus
        self.command_bits = max(
            sizes.command(shape.mesh_columns, serial=True).size, sizes.command(shape.mesh_rows, serial=False).size
        )
        members: dict[str, In | Out] = {
            "run": In(1),
            "reduces": In(1),
            "edge_cycles": In(bits_for(sizes.chunks)),
            "load": In(lines),
            "load_count": In(lines),
            "load_address": In(COUNT_BITS),
            "load_words": In(data.ArrayLayout(self.command_bits, lines)),
            "refill": In(1),
            "takes": Out(lines),
            "hold": In(lines),
            "memories": Out(memory_port(sizes)).array(lines),
            "result_valid": Out(shape.mesh_rows),
            "result_column": Out(data.ArrayLayout(bits_for(shape.mesh_columns - 1), shape.mesh_rows)),
            "result": Out(data.ArrayLayout(sizes.flit_bits, shape.mesh_rows)),
            "sum_valid": Out(shape.mesh_columns),
            "sum": Out(data.ArrayLayout(sizes.flit_bits, shape.mesh_columns)),
            "sends": Out(lines),
            "serial_arrives": Out(clusters),
            "parallel_arrives": Out(clusters),
            "begins": Out(scus),
            "ends": Out(scus),
            "leaves": Out(clusters),
            "sums_start": Out(shape.mesh_columns),
            "empties": Out(clusters),
            "is_quiet": Out(1),
            "is_done": Out(1),
        }
        if sizes.gates_units:
            members |= {"awake_lines": Out(lines), "awake_clusters": Out(clusters), "awake_scus": Out(scus)}
        if counts:
            members["counted_scu"] = In(bits_for(scus - 1))
            members |= {reason: Out(COUNTER_BITS) for reason in (*REASONS, "idle")}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Clusters, controllers and the lines between them."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        rows, columns = range(shape.mesh_rows), range(shape.mesh_columns)
        clusters = {(row, column): Cluster(sizes, row == 0, self.counts) for row in rows for column in columns}
        for (row, column), cluster in clusters.items():
            place(m, f"cluster_{row}_{column}", cluster, "first_cluster" if row == 0 else "cluster")
            self._expose(m, cluster, row * shape.mesh_columns + column)
        row_controllers = [self._controller(m, row, shape.mesh_columns, True) for row in rows]
        column_controllers = [
            self._controller(m, shape.mesh_rows + column, shape.mesh_rows, False) for column in columns
        ]
        slots = turns(m, self.run, shape.result_period_cycles, shape.mesh_columns)
        for row, controller in zip(rows, row_controllers, strict=True):
            line = [clusters[row, column] for column in columns]
            for column, cluster in zip(columns, line, strict=True):
                m.d.comb += cluster.slot_is_mine.eq(slots[column] & ~self.hold[row])
            self._packets(m, controller, line, f"row_{row}")
            self._credits(m, controller, line, f"row_{row}")
            self._results(m, row, line)
        for column, controller in zip(columns, column_controllers, strict=True):
            line = [clusters[row, column] for row in rows]
            self._packets(m, controller, line, f"column_{column}")
            self._credits(m, controller, line, f"column_{column}")
            self._sums(m, column, controller, line)
        if self.counts:
            self._count(m, list(clusters.values()))
        done = [controller.is_done for controller in (*row_controllers, *column_controllers)]
        m.d.comb += [
            self.is_quiet.eq(all_of([cluster.is_quiet for cluster in clusters.values()])),
            self.is_done.eq(all_of([*done, self.is_quiet])),
        ]
        return m

    def _expose(self, m: Module, cluster: Cluster, index: int) -> None:
        scus = self.sizes.shape.scus_per_cluster
        m.d.comb += [
            cluster.enable.eq(self.run),
            cluster.reduces.eq(self.reduces),
            cluster.edge_cycles.eq(self.edge_cycles),
        ]
        for name in ("serial_arrives", "parallel_arrives", "leaves", "empties"):
            m.d.comb += getattr(self, name)[index].eq(getattr(cluster, name))
        by_scu = ["begins", "ends"]
        if self.sizes.gates_units:
            m.d.comb += self.awake_clusters[index].eq(cluster.awake)
            by_scu.append("awake_scus")
        for name in by_scu:
            m.d.comb += getattr(self, name)[index * scus : (index + 1) * scus].eq(getattr(cluster, name))
        if self.counts:
            m.d.comb += [
                cluster.is_counted.eq(self.counted_scu // scus == index),
                cluster.counted_scu.eq(self.counted_scu % scus),
            ]

    def _count(self, m: Module, clusters: list[Cluster]) -> None:
        """Poll the counters round-robin."""
        number = Signal(REASON_NUMBER_BITS)
        m.d.sync += number.eq(Mux(number == len(REASONS) - 1, 0, number + 1))
        counted, valid = (any_of([getattr(each, name) for each in clusters]) for name in ("counted", "counted_valid"))
        for cluster in clusters:
            m.d.comb += cluster.counted_reason.eq(number)
        answered = delayed(m, number, 1, "answered")
        for index, name in enumerate(REASONS):
            with m.If(valid & (answered == index)):
                m.d.sync += getattr(self, name).eq(counted)
        m.d.sync += self.idle.eq(any_of([cluster.idle for cluster in clusters]))

    def _controller(self, m: Module, line: int, places: int, serial: bool) -> Controller:
        kind = "row_controller" if serial else "column_controller"
        controller: Controller = place(m, f"controller_{line}", Controller(self.sizes, places, serial), kind)
        m.d.comb += [
            controller.run.eq(self.run),
            controller.reduces.eq(self.reduces),
            controller.load.eq(self.load[line]),
            controller.load_address.eq(self.load_address),
            controller.load_word.eq(self.load_words[line][: controller.command.size]),
            controller.load_count.eq(self.load_count[line]),
            controller.count.eq(self.load_address),
            controller.refill.eq(self.refill),
            self.takes[line].eq(controller.takes),
            self.sends[line].eq(controller.sends),
        ]
        if self.sizes.gates_units:
            m.d.comb += self.awake_lines[line].eq(controller.awake)
        forward(m, self.memories[line], controller.memory)
        return controller

    def _packets(self, m: Module, controller: Controller, clusters: list[Cluster], name: str) -> None:
        kind = "row_line" if controller.serial else "column_line"
        line = place(m, f"{name}_packets", PacketLine(self.sizes, len(clusters), controller.serial), kind)
        m.d.comb += line.sent.eq(controller.link)
        for distance, cluster in enumerate(clusters):
            arrival: Any = cluster.row_in if controller.serial else cluster.column_in
            m.d.comb += arrival.eq(getattr(line, f"copy_{distance}"))

    def _credits(self, m: Module, controller: Controller, clusters: list[Cluster], name: str) -> None:
        """Credits of block slots go to the controller that sends blocks, those of queue entries to the row's."""
        width = bits_for(self.sizes.shape.accumulator_tiles)
        m.submodules[f"{name}_slot_credits"] = slots = CreditLine(self.sizes, len(clusters), width)
        m.d.comb += controller.slot_credits.eq(slots.back)
        mine = self.reduces if controller.serial else ~self.reduces
        for distance, cluster in enumerate(clusters):
            m.d.comb += slots.given[distance].eq(cluster.slot_credits & mine.replicate(width))
        if controller.serial:
            m.submodules[f"{name}_queue_credits"] = queue = CreditLine(self.sizes, len(clusters), 1)
            m.d.comb += controller.queue_credits.eq(queue.back)
            for distance, cluster in enumerate(clusters):
                m.d.comb += queue.given[distance].eq(cluster.queue_credit)

    def _results(self, m: Module, row: int, clusters: list[Cluster]) -> None:
        line = place(m, f"row_{row}_results", ResultLine(self.sizes), "result_line")
        for distance, cluster in enumerate(clusters):
            m.d.comb += [line.valid[distance].eq(cluster.result_valid), line.results[distance].eq(cluster.result)]
        m.d.comb += [
            self.result_valid[row].eq(line.edge.valid),
            self.result_column[row].eq(line.edge.column),
            self.result[row].eq(line.edge.data),
        ]

    def _sums(self, m: Module, column: int, controller: Controller, clusters: list[Cluster]) -> None:
        hop = self.sizes.shape.hop_cycles
        m.submodules[f"column_{column}_sums"] = line = SumLine(self.sizes)
        m.d.comb += [
            controller.hold.eq(self.hold[self.sizes.shape.mesh_rows + column]),
            self.sums_start[column].eq(controller.sums_start),
            line.order.start.eq(controller.sums_start),
            line.order.last.eq(controller.sums_last),
            line.order.flit.eq(controller.sums_flit),
        ]
        flit = data.StructLayout({"valid": 1, "sums": len(clusters[0].sums_below)})
        above: Any = None
        for row, cluster in enumerate(clusters):
            m.d.comb += [
                controller.closes[row].eq(cluster.closes),
                cluster.sums_done.eq(controller.sums_done),
                cluster.sums_start.eq(line.orders[row].start),
                cluster.sums_last.eq(line.orders[row].last),
                cluster.sums_flit.eq(line.orders[row].flit),
            ]
            if above is not None:
                m.d.comb += cluster.sums_above.eq(above.sums)
            below = Signal(flit, name=f"sums_below_{row}_{column}")
            m.d.comb += [below.valid.eq(cluster.sums_below_valid), below.sums.eq(cluster.sums_below)]
            above = delayed_flit(m, below, hop, f"sums_{row}_{column}")
        collector = place(m, f"column_{column}_flits", SumCollector(self.sizes), "sum_collector")
        m.d.comb += [
            collector.values_valid.eq(above.valid),
            collector.values.eq(above.sums),
            self.sum_valid[column].eq(collector.valid),
            self.sum[column].eq(collector.flit),
        ]
