"""The edges of the fabric inside a device: collectors of results, and the chain that adds groups of mesh columns."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import all_of, any_of, masked
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.device.collector import ResultCollector
from acf.rtl.device.group_adder import GroupAdder
from acf.rtl.device.registers import RegisterFile
from acf.rtl.device.sequencer import Sequencer
from acf.rtl.device.walking import Walking

SLACK = 8
"""Room of a buffer, in flits of a stream, beyond those that can be in flight."""


@dataclass(frozen=True)
class SumSource:
    """Who says how partial sums are added: the host's registers, or the product that is walked."""

    registers: RegisterFile
    walking: Walking

    @property
    def groups(self) -> Value:
        """Groups of mesh columns whose sums are added."""
        return Mux(self.walking.active, self.walking.groups, self.registers.column_groups)


class Edges:
    """Adds to ``m`` a `ResultCollector` for every line, and a `GroupAdder` between a mesh column and its collector.

    ``collectors``: by line. ``are_empty``: no result is left. ``hold``: some line must wait for memory.
    ``sums_are_out``: every flit of partial sums that a walked product has ordered has left the fabric.
    """

    def __init__(
        self,
        m: Module,
        sizes: FabricSizes,
        axi: AxiSpec,
        fabric: Any,
        sequencer: Sequencer,
        source: SumSource,
    ) -> None:
        self.sizes, self.axi, self.fabric, self.sequencer = sizes, axi, fabric, sequencer
        shape = sizes.shape
        rows: list[Any] = [self._row(m, row) for row in range(shape.mesh_rows)]
        groups, due = Signal(bits_for(shape.mesh_columns)), list[Signal]()
        m.d.comb += groups.eq(source.groups)
        stages: list[Any] = [self._stage(m, column, source, due) for column in range(shape.mesh_columns)]
        columns: list[Any] = [self._column(m, column) for column in range(shape.mesh_columns)]
        self._chain(m, stages, columns, groups)
        self.sums_are_out: Value = all_of([each == 0 for each in due])
        self.collectors: list[Any] = rows + columns
        through = Signal()  # no flit is left in front of a collector
        m.d.comb += through.eq(all_of([stage.is_empty for stage in stages]))
        for collector in self.collectors:
            m.d.comb += collector.flush.eq(sequencer.flush & through)
        for line, sender in enumerate([*rows, *stages]):
            m.d.comb += fabric.hold[line].eq(sender.hold)
        self.are_empty: Value = all_of([through, *(collector.is_empty for collector in self.collectors)])
        self.hold: Value = any_of([each.hold for each in (*rows, *stages)])
        self.overflow: Value = any_of([each.overflows for each in (*self.collectors, *stages)])

    def _row(self, m: Module, row: int) -> ResultCollector:
        """The collector of a mesh row: a stream for every cluster."""
        sizes, shape, fabric = self.sizes, self.sizes.shape, self.fabric
        late = sizes.datapath_delay + shape.result_flit_cycles + shape.hop_cycles * shape.mesh_columns
        collector = ResultCollector(sizes, self.axi, shape.mesh_columns, late // shape.result_period_cycles + SLACK)
        place(m, f"row_{row}_collector", collector, "row_collector", self.sequencer.reset)
        m.d.comb += [
            collector.valid.eq(fabric.result_valid[row]),
            collector.stream.eq(fabric.result_column[row]),
            collector.flit.eq(fabric.result[row]),
        ]
        return collector

    def _stage(self, m: Module, column: int, source: SumSource, due: list[Signal]) -> GroupAdder:
        """The stage of a mesh column in its chain; the first column has nothing to add to.

        Appends to ``due`` the flits that the column has been ordered to send and has not sent.
        """
        registers, walking = source.registers, source.walking
        sizes, shape, fabric = self.sizes, self.sizes.shape, self.fabric
        line = shape.mesh_rows + column
        late = sizes.datapath_delay + shape.sum_flit_cycles + shape.hop_cycles * (shape.mesh_rows + 1)
        stage = GroupAdder(sizes, late // shape.sum_flit_cycles + SLACK, column > 0)
        place(m, f"column_{column}_stage", stage, "group_adder" if column else "first_stage", self.sequencer.reset)
        layout = sizes.command(shape.mesh_rows, serial=False)
        command = fabric.load_words[line][: layout.size]
        gap, flits = layout["address"], layout["sum_flits"]
        m.d.comb += [
            stage.start.eq(self.sequencer.begins),
            stage.count.eq(registers.counts[line]),
            stage.walks.eq(walking.active),
            stage.is_loaded.eq(walking.is_finished),
            stage.adds.eq((source.groups > 1) & fabric.reduces),
            stage.valid.eq(fabric.sum_valid[column]),
            stage.flit.eq(fabric.sum[column]),
            stage.round_valid.eq((fabric.load[line] | walking.gaps[line]) & stage.adds),
            walking.gap_ready[line].eq(stage.round_ready | ~stage.adds),
            stage.round_gap.eq(command[gap.offset : gap.offset + gap.width]),
            stage.round_flits.eq(command[flits.offset : flits.offset + flits.width]),
        ]
        left = Signal(bits_for((sizes.command_depth + 2) * sizes.most_sum_flits), name=f"sums_due_{column}")
        ordered = Mux(fabric.load[line] & fabric.reduces, stage.round_flits, 0)
        m.d.sync += left.eq(Mux(self.sequencer.reset, 0, left + ordered - fabric.sum_valid[column]))
        due.append(left)
        return stage

    def _column(self, m: Module, column: int) -> ResultCollector:
        """The collector of a mesh column, or of a chain of them."""
        collector = ResultCollector(self.sizes, self.axi, 1, 0)
        place(m, f"column_{column}_collector", collector, "column_collector", self.sequencer.reset)
        return collector

    def _chain(self, m: Module, stages: list[GroupAdder], collectors: list[ResultCollector], groups: Signal) -> None:
        """Connect the stages for every number of groups; the last group's stages lead to the collectors."""
        columns = len(stages)
        widths = {count: columns // count for count in range(1, columns + 1) if columns % count == 0}
        for column, (stage, collector) in enumerate(zip(stages, collectors, strict=True)):
            first = [groups == count for count, width in widths.items() if column < width]
            last = [groups == count for count, width in widths.items() if column >= columns - width]
            before = [(groups == count, stages[column - width]) for count, width in widths.items() if column >= width]
            after = [
                (groups == count, stages[column + width]) for count, width in widths.items() if column + width < columns
            ]
            is_last = any_of(last)
            taken = any_of([chosen & other.takes for chosen, other in after]) if after else Const(0, 1)
            m.d.comb += [
                stage.is_first.eq(any_of(first)),
                stage.total_ready.eq((is_last & collector.ready) | taken),
                collector.valid.eq(is_last & stage.total_valid & collector.ready),
                collector.flit.eq(stage.total),
            ]
            if before:
                m.d.comb += [
                    stage.before_valid.eq(any_of([chosen & other.total_valid for chosen, other in before])),
                    stage.before.eq(any_of([masked(other.total, chosen) for chosen, other in before])),
                    stage.before_ended.eq(any_of([chosen & other.ended for chosen, other in before])),
                ]
