"""The index-walking controller: reads a product's descriptor and index and makes the commands of every line.

It runs output-stationary products, with or without a mask of output tiles; split-K products it hands to a
`SplitKController`. An output-stationary round is walked twice: first from its end until the last k_step of every
cluster is known, which closes its bank, then to make commands. Blocks of a k_step come before the serial tiles that
they meet, so a full command memory never keeps back what another line waits for.
"""

from amaranth.hdl import Array, Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from acf.lowering.descriptor import DESCRIPTOR_WORDS, VERSION
from acf.lowering.product_index import EMPTY_ROUND
from acf.rtl.design.index.controller_units import ORDER_BITS, IndexSizes
from acf.rtl.design.index.row_commands import RowCommands
from acf.rtl.design.index.split_k_controller import SplitKController
from acf.rtl.design.primitives.bits import all_of, search
from acf.rtl.design.primitives.unit_gates import stopped_unless
from acf.rtl.design.primitives.wires import forward

__all__ = ["IndexController", "IndexSizes"]


class IndexController(RowCommands):
    """``start`` runs the product whose descriptor begins at word 0 of the memory, with its index behind it.

    ``memory_data`` answers ``memory_address`` (in 32-bit words) one cycle later. While ``valid``, a command for
    ``line`` is in ``word``; it is taken in a cycle in which ``ready`` of its line is 1. With ``is_gap`` it is for the
    adder behind a mesh column alone. ``busy`` holds from the cycle after ``start`` to the last command. ``is_refused``:
    the descriptor is none that this controller can run.
    """

    def elaborate(self, platform: object) -> Elaboratable:
        """Set up (descriptor, addresses, owners), then round by round."""
        m = Module()
        self._make_state(m)
        self._make_units(m)
        with m.FSM(name="control") as control:
            self._set_up(m)
            self._find_owners(m)
            self._walk_round(m)
            self._send_rows(m)
            self._split_k(m)
            m.d.comb += self.busy.eq(~control.ongoing("IDLE"))
        return stopped_unless(self.start | self.busy, m) if self.sizes.fabric.gates_units else m

    # Descriptor, addresses of slots.
    def _set_up(self, m: Module) -> None:
        with m.State("IDLE"):
            m.d.sync += self._place.eq(0)
            with m.If(self.start):
                m.d.sync += [self.is_refused.eq(0), *(each.eq(0) for each in self._rounds.values())]
                m.next = "DESCRIBE"
        with m.State("DESCRIBE"):
            m.d.comb += self.memory_address.eq(self._place)
            m.d.sync += self._place.eq(self._place + 1)
            for number, word in enumerate(self._words):
                with m.If(self._place == number + 1):
                    m.d.sync += word.eq(self.memory_data)
            with m.If(self._place == DESCRIPTOR_WORDS):
                m.next = "CHECK"
        with m.State("CHECK"):
            m.d.sync += self._place.eq(0)
            m.next = "ADDRESSES"
            with m.If(self._refuses()):
                m.d.sync += self.is_refused.eq(1)
                m.next = "IDLE"
            with m.Elif(self._field("split_k")):
                m.d.comb += self._split_k_start.eq(1)
                m.next = "SPLIT_K"
        with m.State("ADDRESSES"):  # the prefix sum of the slots' flits
            sums = self._slot_sums
            m.d.comb += [
                self.memory_address.eq(self._at("entries_at") + self._place),
                sums.counts.eq(self.memory_data[16:23]),
                sums.valid.eq((self._place != 0) & (self._place <= self._field("blocks"))),
                sums.clear.eq(self._place == 1),
                self._address_in.en.eq(sums.offsets_valid),
                self._address_in.addr.eq(self._place - 2),
                self._address_in.data.eq(sums.offsets),
            ]
            m.d.sync += self._place.eq(self._place + 1)
            with m.If(self._place == self._field("blocks") + 1):
                m.d.sync += self._place.eq(0)
                m.next = "CLEAR"

    def _refuses(self) -> Value:
        sizes = self.sizes
        beyond = (
            (self._field("version") != VERSION)
            | (self._field("tile") != sizes.fabric.shape.tile)
            | (~self._field("split_k") & (self._field("blocks") > sizes.blocks))
            | (self._field("column_tiles") > sizes.column_tiles)
            | (~self._field("split_k") & (self._field("column_rounds") > sizes.column_tiles))
        )
        tile = sizes.fabric.shape.tile
        beyond |= self._field("split_k") & (self._field("rows") > sizes.column_tiles * tile)
        planned = self._field("policy") != 0
        return beyond | (planned & (self._field("k_tiles") > sizes.depths) if sizes.plans else planned)

    def _split_k(self, m: Module) -> None:
        """Hand the memory and the lines over until the product is walked."""
        m.submodules.split_k = split_k = SplitKController(self.sizes, self.number)
        m.d.comb += [
            *(split_k.descriptor[number].eq(word) for number, word in enumerate(self._words)),
            split_k.memory_data.eq(self.memory_data),
            split_k.ready.eq(self.ready),
            split_k.start.eq(self._split_k_start),
        ]
        forward(m, self, split_k, ["joined", "others_joined", "waits", "all_wait"])
        with m.State("SPLIT_K"):
            m.d.comb += [
                self.memory_address.eq(split_k.memory_address),
                self.valid.eq(split_k.valid),
                self.line.eq(split_k.line),
                self.word.eq(split_k.word),
                self.is_gap.eq(split_k.is_gap),
            ]
            with m.If(split_k.ends):
                m.next = "IDLE"

    # Owners of output columns, stored or planned.
    def _find_owners(self, m: Module) -> None:
        with m.State("CLEAR"):
            m.d.comb += [
                self._owned_in.addr.eq(self._place),
                self._owned_in.en.eq(-1),
                self._owner_in.addr.eq(self._place),
                self._owner_in.data.eq(EMPTY_ROUND << 16),
                self._owner_in.en.eq(1),
            ]
            m.d.sync += self._place.eq(self._place + 1)
            most = Mux(self._field("masked"), self._field("column_tiles"), self._field("column_rounds"))
            with m.If(self._place + 1 == most):
                m.d.sync += self._place.eq(0)
                m.next = "OWNERS"
                if self.sizes.plans:
                    with m.If(self._field("policy") != 0):
                        m.next = "PLAN"
        with m.State("OWNERS"):
            m.d.comb += self.memory_address.eq(self._at("owners_at") + self._place)
            m.d.sync += self._place.eq(self._place + 1)
            with m.If((self._place != 0) & ~self.memory_data[16:].all()):
                column, place = self.memory_data[:8], self.memory_data[8:16]
                self._own(m, self._place - 1, column, place, self.memory_data[16:])
            with m.If(self._place == self._field("column_tiles")):
                m.next = "BEGIN"
        if self.sizes.plans:
            self._plan_owners(m)
        with m.State("BEGIN"):
            m.d.sync += [
                self._column_round.eq(0),
                self._row_round.eq(0),
                self._round_base.eq(self._at("batches_at")),
                self._order_base.eq(self._at("orders_at")),
                self._mask_base.eq(self._at("mask_at")),
                self._row_words.eq(self._of_groups(self._batch_words())),
            ]
            m.next = "ROUND"

    def _own(self, m: Module, of: Value, column: Value, place: Value, number: Value) -> None:
        """Write an owner, and count it among those of its round, alike in every group of mesh columns."""
        shape, width = self.sizes.fabric.shape, bits_for(self.sizes.fabric.shape.accumulator_tiles)
        m.d.comb += [
            self._owner_in.en.eq(1),
            self._owner_in.addr.eq(of),
            self._owner_in.data.eq(Cat((column | Signal(8))[:8], (place | Signal(8))[:8], (number | Signal(16))[:16])),
            self._owned_in.addr.eq(number),
            self._owned_in.en.eq(self._repeated(column)),
            self._owned_in.data.eq(Cat(*((place + 1)[:width] for _ in range(shape.mesh_columns)))),
        ]

    def _repeated(self, column: Value) -> Value:
        """The bit of a mesh column within its group, in every group."""
        columns = self.sizes.fabric.shape.mesh_columns
        groups: Value | int = 0
        for size in range(1, columns + 1):
            if columns % size == 0:
                first = sum(1 << place for place in range(0, columns, size))
                groups = Mux(self._field("group_columns") == size, first, groups)
        return (groups << column[: bits_for(columns - 1)])[:columns]

    def _plan_owners(self, m: Module) -> None:
        planner, blocks = self._planner, self._blocks
        m.d.comb += [
            planner.column_tiles.eq(self._field("column_tiles")),
            planner.columns_per_round.eq(self._field("columns_per_round")),
            planner.policy.eq(self._field("policy") - 1),
            planner.block_column.eq(blocks.entry),
            planner.block_depth.eq(blocks.line),
        ]
        with m.State("PLAN"):
            m.d.comb += planner.clear.eq(1)
            m.next = "CLEARED"
        with m.State("CLEARED"), m.If(planner.is_ready):
            m.d.comb += [blocks.start.eq(1), self.memory_address.eq(blocks.memory_address)]
            m.next = "COLLECT"
        with m.State("COLLECT"):
            m.d.comb += [
                self.memory_address.eq(blocks.memory_address),
                blocks.ready.eq(1),
                planner.block.eq(blocks.valid),
            ]
            with m.If(~blocks.busy):
                m.d.comb += planner.plan.eq(1)
                m.next = "SHARE"
        with m.State("SHARE"):
            with m.If(planner.owner_valid):
                self._own(m, planner.owner_of, planner.owner_column, planner.owner_place, planner.owner_round)
            with m.If(planner.is_done):
                m.next = "BEGIN"

    # A round: k_step by k_step, twice.
    def _walk_round(self, m: Module) -> None:
        with m.State("ROUND"):
            m.d.comb += [self._owned_out.addr.eq(self._column_round), self.memory_address.eq(self._order_base)]
            m.d.sync += [Cat(*self._owned).eq(self._owned_out.data), self._emits.eq(0)]
            m.d.sync += [joined.eq(0) for joined in self._joined.values()]
            m.d.sync += [kept.eq(Mux(self._field("masked"), 0, -1)) for kept in self._kept.values()]
            m.next = "STEPS"
        with m.State("STEPS"):
            m.d.sync += [self._steps.eq(self.memory_data), self._place.eq(0), self._order.eq(self.memory_data - 1)]
            m.next = "ORDER"
            with m.If(self._field("masked")):
                m.next = "COLUMN"
        self._read_mask(m)
        with m.State("ORDER"):
            self._ask_k_tile(m, self._order)
        with m.State("K_TILE"):
            m.d.sync += [
                self._k_tile.eq(self.memory_data),
                self._batch.eq(self._round_base + self.memory_data[:ORDER_BITS] * self._field("batch_stride")),
                self._row.eq(0),
                self._group.eq(0),
            ]
            self._begin_scan(m)
            m.next = "SCAN"
        with m.State("SCAN"):
            self._scan(m)
        with m.State("WALK"):
            self._walk(m)
        with m.State("NEXT"):
            self._next(m)

    def _ask_k_tile(self, m: Module, order: Value) -> None:
        """Read the k_tile of a place in the order of sending, and forget the one before."""
        m.d.comb += self.memory_address.eq(self._order_base + order + 1)
        for table in (self._live, self._work, self._stored, self._edge_valid):
            m.d.sync += [signal.eq(0) for signal in table.values()]
        m.next = "K_TILE"

    def _walk(self, m: Module) -> None:
        """Visit the blocks of the k_tile; those of this round are noted, and in the second pass sent."""
        blocks, mine, taken = self._blocks, Signal(), Signal()
        m.d.comb += [
            self.memory_address.eq(blocks.memory_address),
            mine.eq(blocks.valid & (self._owner_round == self._column_round)),
            taken.eq(1),
            blocks.ready.eq(taken),
        ]
        with m.If(mine & self._emits):
            self._send_block(m, taken)
        with m.If(mine & taken):
            self._note_block(m, self._repeated(self._owner_column))
        with m.If(blocks.ends):
            m.next = "NEXT"
            with m.If(self._emits):
                self._begin_parts(m)

    def _send_block(self, m: Module, taken: Signal) -> None:
        """A command for every own mesh column that stores the block, if a row there uses it; the last is ``taken``."""
        sizes, shape = self.sizes.fabric, self.sizes.fabric.shape
        pending, users, sent, moves = (
            Signal(shape.mesh_columns),
            Signal(shape.mesh_rows),
            Signal(shape.mesh_columns),
            Signal(),
        )
        own = Const(sum(1 << place for place in self._own_columns), shape.mesh_columns)
        m.d.comb += pending.eq(self._repeated(self._owner_column) & own & ~sent)
        found = search(pending)
        command = Signal(sizes.command(shape.mesh_rows, serial=False))
        entry, line = self._blocks.entry, Signal.like(self.line)
        m.d.comb += [
            users.eq(Array(self._users)[found.lowest]),
            line.eq(found.lowest + shape.mesh_rows),
            command.parallel.eq(1),
            command.packed.eq(entry[23]),
            command.flits.eq(entry[16:23]),
            command.address.eq(self._address_out.data),
            command.destinations.eq(users),
            command.transposed.eq(self._field("parallel_transposed")),
            self.valid.eq(found.any & (users != 0)),
            self.line.eq(line),
            self.word.eq(command),
            moves.eq(~self.valid | self.ready.bit_select(line, 1)),
            taken.eq(moves & ~found.several),
        ]
        with m.If(moves):
            m.d.sync += sent.eq(Mux(taken, 0, sent | (1 << found.lowest)))

    def _next(self, m: Module) -> None:
        """The k_step before, until all clusters with an output have joined; then k_step, batch or round behind."""
        following = Signal(ORDER_BITS)
        m.d.comb += following.eq(self._order + 1)
        self._ask_k_tile(m, following)
        m.d.sync += self._order.eq(following)
        with m.If(~self._emits):
            joins = {each: self._work[each].any() & ~joined for each, joined in self._joined.items()}
            for each, found in joins.items():
                with m.If(found):
                    m.d.sync += [self._last[each].eq(self._order), self._joined[each].eq(1)]
            joined = [each | joins[at] | (self._owned[at[1]] == 0) for at, each in self._joined.items()]
            ends = all_of(joined) | (self._order == 0)
            m.d.comb += following.eq(Mux(ends, 0, self._order - 1))
            m.d.sync += self._emits.eq(ends)
        with m.Else(), m.If(self._order + 1 == self._steps):
            m.d.sync += [rounds.eq(rounds + self._joined[each]) for each, rounds in self._rounds.items()]
            m.d.sync += [
                self._mask_base.eq(self._mask_next),
                self._row_round.eq(self._row_round + 1),
                self._round_base.eq(self._round_base + self._field("k_tiles") * self._field("batch_stride")),
            ]
            m.next = "ROUND"
            with m.If(self._row_round + 1 == self._field("row_rounds")):
                m.d.sync += [
                    self._row_round.eq(0),
                    self._round_base.eq(self._at("batches_at")),
                    self._mask_base.eq(self._at("mask_at")),
                    self._column_round.eq(self._column_round + 1),
                    self._order_base.eq(self._order_base + self._field("k_tiles") + 1),
                ]
                with m.If(self._column_round + 1 == self._field("column_rounds")):
                    m.next = "IDLE"
