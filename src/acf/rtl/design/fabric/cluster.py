"""A cluster: SCUs, the queue and tile stores that they share, and their double-buffered accumulator banks."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.block_datapath import BlockDatapath
from acf.rtl.design.fabric.counters import COUNTER_BITS, REASON_NUMBER_BITS, StallCounters
from acf.rtl.design.fabric.datapath import SumDatapath
from acf.rtl.design.fabric.receiver import TileReceiver
from acf.rtl.design.fabric.results import FlitGatherer, SumChain, SumReader, rounded_bf16
from acf.rtl.design.fabric.sizes import REASON_BITS, ROUND_BITS, FabricSizes
from acf.rtl.design.fabric.store_port import StorePort
from acf.rtl.design.fabric.walker import Walker
from acf.rtl.design.primitives.bits import all_of, any_of, delayed, masked, wrapped
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.unit_gates import stopped_unless, under_way

DATAPATHS: dict[str, type[SumDatapath]] = {"banks": SumDatapath, "registers": BlockDatapath}
"""Datapaths of an SCU by where it accumulates (`acf.lowering.FabricShape`)."""


class Cluster(Component):
    """Receives flits from its row's and its column's router, and returns results and credits.

    ``queue_credit`` is 1 in the cycle in which a queue entry becomes free; ``slot_credits`` is the number of block
    slots that become free. ``reduces``: blocks come along the mesh row, and partial sums leave at ``sums_start`` (the
    datapath's time) until ``sums_done``. ``slot_is_mine``: this cluster's time slot on the result line.
    ``is_first_row``: no partial sums come from above. With ``counts`` the counter of ``counted_scu`` for
    ``counted_reason`` and the SCU's idle cycles can be read a cycle later if ``counted_valid``; both are 0 unless
    ``is_counted``.
    """

    def __init__(self, sizes: FabricSizes, is_first_row: bool, counts: bool = True) -> None:
        self.sizes, self.is_first_row, self.counts = sizes, is_first_row, counts
        shape = sizes.shape
        scus, tiles = shape.scus_per_cluster, shape.accumulator_tiles
        members: dict[str, In | Out] = {
            "enable": In(1),
            "reduces": In(1),
            "edge_cycles": In(bits_for(sizes.chunks)),
            "row_in": In(sizes.link(1, serial=True)),
            "column_in": In(sizes.link(1, serial=False)),
            "queue_credit": Out(1),
            "slot_credits": Out(bits_for(tiles)),
            "slot_is_mine": In(1),
            "closes": Out(1),
            "sums_done": In(1),
            "sums_start": In(1),
            "sums_flit": In(bits_for(sizes.most_sum_flits)),
            "sums_last": In(1),
            "sums_above": In(32 * sizes.sum_values),
            "sums_below_valid": Out(1),
            "sums_below": Out(32 * sizes.sum_values),
            "result_valid": Out(1),
            "result": Out(sizes.flit_bits),
            "serial_arrives": Out(1),
            "parallel_arrives": Out(1),
            "begins": Out(scus),
            "ends": Out(scus),
            "leaves": Out(1),
            "empties": Out(1),
            "is_quiet": Out(1),
        }
        if sizes.gates_units:
            members |= {"awake": Out(1), "awake_scus": Out(scus)}
        if counts:
            members |= {
                "is_counted": In(1),
                "counted_scu": In(bits_for(scus - 1)),
                "counted_reason": In(REASON_NUMBER_BITS),
                "counted": Out(COUNTER_BITS),
                "counted_valid": Out(1),
                "idle": Out(COUNTER_BITS),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Receive tiles, walk them, fetch and accumulate, close banks, drain them."""
        m, sizes, shape = Module(), self.sizes, self.sizes.shape
        scus = shape.scus_per_cluster
        walkers = [Walker(sizes) for _ in range(scus)]
        paths = [DATAPATHS[shape.accumulate_in](sizes) for _ in range(scus)]
        ports = [StorePort(sizes) for _ in range(sizes.ports)]
        for scu, (walker, path) in enumerate(zip(walkers, paths, strict=True)):
            place(m, f"walker_{scu}", walker, "walker")
            place(m, f"datapath_{scu}", path, "datapath")
            port, turn = ports[scu // shape.scus_per_port], scu % shape.scus_per_port
            m.d.comb += [
                path.operation.eq(walker.operation),
                port.requests[turn].eq(walker.request),
                walker.turn.eq(port.turns[turn]),
                walker.last_cycle.eq(port.last_cycle),
                path.fetched_valid.eq(port.fetched_valid[turn]),
                path.fetched.eq(port.fetched),
                *([path.fetched_fresh.eq(port.fetched_fresh[turn])] if sizes.holds_sums else []),
                walker.scu.eq(scu),
                walker.edge_cycles.eq(self.edge_cycles),
                self.begins[scu].eq(walker.begins),
                self.ends[scu].eq(walker.ends),
            ]
        for index, port in enumerate(ports):
            place(m, f"port_{index}", port, "port")
        control = Module() if sizes.gates_units else m
        arrived, block_reason = self._receive_blocks(control, ports)
        done_header = self._receive_items(control, walkers, ports)
        emptied = Signal(ROUND_BITS)
        for walker in walkers:
            m.d.comb += [walker.arrived.eq(arrived), walker.emptied.eq(emptied)]
        item_done = self._finish_items(control, walkers, done_header)
        drains = self._drain(control, paths, emptied, item_done, done_header)
        if sizes.gates_units:
            m.d.comb += [
                self.awake.eq(any_of([self._comes, self.ends.any(), item_done, drains, self.sums_done])),
                self.awake_scus.eq(Cat(*(walker.awake for walker in walkers))),
            ]
            m.submodules.control = stopped_unless(self.awake, control)
        if self.counts:
            self._count(m, walkers, block_reason)
        return m

    def _receive_blocks(self, m: Module, ports: list[StorePort]) -> tuple[Signal, Signal]:
        """Count of blocks received, and the stall reason that the last of them carried."""
        sizes = self.sizes
        m.submodules.block_receiver = receiver = TileReceiver(sizes, sizes.shape.parallel_slots)
        row, column = self.row_in, self.column_in
        flit = Signal(data.StructLayout({"last": 1, "packed": 1, "reason": REASON_BITS, "data": sizes.flit_bits}))
        valid = Signal()
        for name in ("last", "packed", "reason", "data"):
            m.d.comb += flit[name].eq(Mux(self.reduces, row[name], column[name]))
        m.d.comb += [
            valid.eq(Mux(self.reduces, row.valid & row.parallel, column.valid)),
            receiver.valid.eq(valid),
            receiver.last.eq(flit.last),
            receiver.packed.eq(flit.packed),
            receiver.data.eq(flit.data),
            self.parallel_arrives.eq(receiver.whole),
        ]
        self._write_ports(m, "parallel", ports, receiver)
        arrived, reason = Signal(sizes.due_bits), Signal(REASON_BITS)
        with m.If(receiver.whole):
            m.d.sync += [arrived.eq(arrived + 1), reason.eq(flit.reason)]
        return arrived, reason

    def _receive_items(self, m: Module, walkers: list[Walker], ports: list[StorePort]) -> data.View:
        """Queue every serial tile for all SCUs; returns the header of the oldest tile in flight."""
        sizes, shape = self.sizes, self.sizes.shape
        m.submodules.item_receiver = receiver = TileReceiver(sizes, shape.queue_packets)
        row = self.row_in
        self._comes = row.valid | self.column_in.valid
        m.d.comb += [
            receiver.valid.eq(row.valid & ~row.parallel),
            receiver.last.eq(row.last),
            receiver.packed.eq(row.packed),
            receiver.data.eq(row.data),
            self.serial_arrives.eq(receiver.whole),
        ]
        self._write_ports(m, "serial", ports, receiver)
        header = Signal(sizes.header)
        m.d.comb += header.eq(row.headers)
        due, base = Signal(sizes.due_bits), Signal(range(max(2, shape.parallel_slots)))
        after = Signal(sizes.due_bits)
        m.d.comb += after.eq(due + header.count)
        with m.If(receiver.whole & header.last_of_k_step):
            m.d.sync += [due.eq(after), base.eq(wrapped(Cat(base, 0) + header.count, shape.parallel_slots))]
        for scu, walker in enumerate(walkers):
            item = walker.write_item
            own_rows = range(scu, shape.tile, shape.scus_per_cluster)
            m.d.comb += [
                walker.write.eq(receiver.whole),
                walker.write_place.eq(receiver.place),
                *(item[name].eq(header[name]) for name in ("blocks", "sums", "round")),
                *(item[name].eq(header[name]) for name in ("edge_valid", "edge") if not sizes.skips_both),
                item.due.eq(after),
                item.base.eq(base),
                item.reason.eq(row.reason),
                item.bitmap.eq(Cat(*(receiver.bitmap[index * shape.tile :][: shape.tile] for index in own_rows))),
            ]
        m.submodules.headers = memory = Memory(shape=sizes.header, depth=max(2, shape.queue_packets), init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [write.en.eq(receiver.whole), write.addr.eq(receiver.place), write.data.eq(header)]
        self._done_place = read.addr
        return read.data

    def _write_ports(self, m: Module, name: str, ports: list[StorePort], receiver: TileReceiver) -> None:
        for port in ports:
            m.d.comb += [
                getattr(port, f"{name}_write").eq(receiver.valid),
                getattr(port, f"{name}_word").eq(receiver.word),
                getattr(port, f"{name}_data").eq(receiver.data),
                getattr(port, f"{name}_whole").eq(receiver.whole),
                getattr(port, f"{name}_place").eq(receiver.place),
                getattr(port, f"{name}_packed").eq(receiver.packed),
                getattr(port, f"{name}_bitmap").eq(receiver.bitmap),
            ]

    def _finish_items(self, m: Module, walkers: list[Walker], header: data.View) -> Signal:
        """A tile is done when every SCU has ended it: its queue entry is free, after a k_step its block slots."""
        queue = self.sizes.shape.queue_packets
        ahead = [Signal(range(queue + 1), name=f"ended_{scu}") for scu in range(len(walkers))]
        done, oldest = Signal(), Signal(range(max(2, queue)))
        self._queued = queued = Signal(range(queue + 1))
        m.d.sync += queued.eq(queued + self.serial_arrives - done)
        m.d.comb += [
            done.eq(all_of([count != 0 for count in ahead])),
            self._done_place.eq(oldest),
            self.queue_credit.eq(done),
            self.slot_credits.eq(masked(header["count"], done & header.last_of_k_step)),
            self.closes.eq(done & header.last_of_round),
        ]
        for count, walker in zip(ahead, walkers, strict=True):
            m.d.sync += count.eq(count + walker.ends - done)
        with m.If(done):
            m.d.sync += oldest.eq(wrapped(oldest + 1, queue))
        return done

    def _drain(
        self,
        m: Module,
        paths: list[SumDatapath],
        emptied: Signal,
        done: Signal,
        header: data.View,
    ) -> Value:
        """Decide when result flits leave; the datapath follows ``datapath_delay`` + 1 cycles later.

        Returns whether results are under way, where units have clock gates.
        """
        sizes = self.sizes
        m.submodules.results = results = FlitGatherer(sizes)
        m.submodules.sums = sums = SumReader(sizes)
        flit, leaves, is_last = self._leave_in_slots(m, results, emptied, header)
        delay = sizes.datapath_delay + 1
        m.d.comb += [
            results.start.eq(delayed(m, leaves, delay, "leaves")),
            results.flit.eq(delayed(m, flit, delay, "leaving")),
            sums.start.eq(self.sums_start),
            sums.flit.eq(self.sums_flit),
        ]
        bank = Signal()
        result_ends = delayed(m, is_last, delay + results.cycles - 1, "bank_drained")
        sum_ends = delayed(m, self.sums_start & self.sums_last, sums.cycles - 1, "sums_drained")
        m.d.sync += bank.eq(bank ^ (result_ends | sum_ends))
        for scu, path in enumerate(paths):
            m.d.comb += [
                path.drain.eq(results.reads[scu] | sums.drains[scu]),
                path.drain_bank.eq(bank),
                path.drain_address.eq(Mux(results.reads.any(), results.address, sums.address)),
            ]
        words = Signal(len(sums.words))
        rounded = [rounded_bf16(words[start : start + 32]) for start in range(0, len(words), 32)]
        m.d.comb += [
            words.eq(Cat(*(path.drained for path in paths))),
            results.words.eq(Cat(*rounded)),
            sums.words.eq(words),
        ]
        m.submodules.chain = chain = SumChain(sizes, self.is_first_row)
        m.d.comb += [
            self.result_valid.eq(results.valid),
            self.result.eq(results.data),
            chain.above.eq(self.sums_above),
            chain.own.eq(sums.values),
            self.sums_below.eq(chain.total),
            self.sums_below_valid.eq(sums.valid),
            self.leaves.eq(leaves),
        ]
        if not sizes.gates_units:
            return Const(1, 1)
        passes = under_way(m, leaves | self.sums_start, delay + max(results.cycles, sums.cycles) + 2)
        return passes | self._rests

    def _leave_in_slots(
        self, m: Module, results: FlitGatherer, emptied: Signal, header: data.View
    ) -> tuple[Signal, Signal, Signal]:
        """The flit that leaves, whether one leaves, whether it is the round's last; counts empty banks."""
        sizes = self.sizes
        tile_flits = sizes.tile_values // sizes.flit_values
        waiting, tiles = (
            Signal(range(3)),
            [Signal(range(self.sizes.shape.accumulator_tiles + 1), name=f"tiles_{i}") for i in (0, 1)],
        )
        flit, active, limit = Signal(range(results.flits)), Signal(), Signal(range(results.flits + 1))
        closes = Signal()
        filled = Signal()  # the bank that closes next
        m.d.comb += closes.eq(self.closes & ~self.reduces)
        with m.If(closes):
            m.d.sync += filled.eq(~filled)
            for bank in (0, 1):
                with m.If(filled == bank):
                    m.d.sync += tiles[bank].eq(header.tiles)
        # Cycles until the bank counts as empty: the last flit is assembled first, and no other is begun meanwhile.
        rest = Signal(range(sizes.shape.result_flit_cycles + 1))
        self._rests = rest != 0
        oldest = Signal()
        ready = Signal()
        m.d.comb += [
            ready.eq(((waiting != 0) | closes) & (rest == 0)),
            active.eq(ready & self.slot_is_mine & self.enable),
            limit.eq(Mux(waiting != 0, Mux(oldest, tiles[1], tiles[0]), header.tiles) * tile_flits),
        ]
        leaves, is_last = Signal(), Signal()
        m.d.comb += [leaves.eq(active), is_last.eq(active & (flit == limit - 1))]
        with m.If(leaves):
            m.d.sync += flit.eq(Mux(is_last, 0, flit + 1))
        with m.If(is_last):
            m.d.sync += [rest.eq(sizes.shape.result_flit_cycles), oldest.eq(~oldest)]
        with m.Elif(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        m.d.sync += waiting.eq(waiting + closes - is_last)
        empties = Signal()
        m.d.comb += self.is_quiet.eq((waiting == 0) & (rest == 0) & (self._queued == 0))
        m.d.comb += [empties.eq(Mux(self.reduces, self.sums_done, rest == 1)), self.empties.eq(empties)]
        with m.If(empties):
            m.d.sync += emptied.eq(emptied + 1)
        return flit, leaves, is_last

    def _count(self, m: Module, walkers: list[Walker], block_reason: Signal) -> None:
        all_counters = []
        for scu, walker in enumerate(walkers):
            counters = place(m, f"counters_{scu}", StallCounters(), "counters")
            m.d.comb += [
                counters.enable.eq(self.enable),
                counters.item_there.eq(walker.item_there),
                counters.blocks_there.eq(walker.blocks_there),
                counters.item_reason.eq(walker.reason),
                counters.block_reason.eq(block_reason),
                counters.begins.eq(walker.begins),
                counters.works.eq(walker.works),
                counters.scans.eq(walker.scans),
                counters.counted_reason.eq(self.counted_reason),
            ]
            all_counters.append(counters)
        chosen = {}
        for name in ("counted", "is_counted", "counted_valid", "since", "turned"):
            values = Array(getattr(counters, name) for counters in all_counters)
            chosen[name] = values[self.counted_scu] if len(values) > 1 else values[0]
        m.d.sync += [
            self.counted.eq(masked(chosen["counted"], self.is_counted & chosen["is_counted"])),
            self.counted_valid.eq(chosen["counted_valid"] & self.is_counted),
            self.idle.eq(masked((chosen["since"] + chosen["turned"])[:COUNTER_BITS], self.is_counted)),
        ]
