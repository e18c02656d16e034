"""A mesh router: virtual channels, credit-based flow control, multicast, and a double-buffered routing table.

Every cycle is as `acf.sim.mesh` defines it, with one difference: a flit looks up its outputs as it arrives, not as it
becomes the head of its queue. The result is the same unless the banks of the table are swapped in between, and they are
swapped only when the mesh is idle. Unicast destinations are entries of the table like multicast groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out, Signature

from acf.errors import RtlError
from acf.rtl.design.mesh.routing_table import RoutingTable
from acf.rtl.design.primitives.round_robin import after, first_from, index_of, select


@dataclass(frozen=True)
class RouterSpec:
    """``ports`` in and out, of which port 0 is the endpoint's; queues, delays, and the sizes of flits and table."""

    ports: int = 5
    virtual_channels: int = 2
    queue_flits: int = 4
    credit_delay_cycles: int = 1
    ids: int = 64
    data_bits: int = 32

    def __post_init__(self) -> None:
        for name, least in (("ports", 2), ("virtual_channels", 1), ("queue_flits", 1), ("ids", 2), ("data_bits", 1)):
            if getattr(self, name) < least:
                raise RtlError(f"{name} {getattr(self, name)} is less than {least}; give a router at least that")

    @property
    def queues(self) -> int:
        """Input queues: number ``input * virtual_channels + virtual channel``."""
        return self.ports * self.virtual_channels

    @property
    def id_bits(self) -> int:
        """Bits of the id that a flit is routed by."""
        return (self.ids - 1).bit_length()

    @property
    def channel_bits(self) -> int:
        """Bits that name a virtual channel."""
        return max(1, (self.virtual_channels - 1).bit_length())

    def link(self) -> Signature:
        """A flit on a link, seen from its sender; there is no ready signal, credits guarantee room."""
        return Signature(
            {"valid": Out(1), "channel": Out(self.channel_bits), "id": Out(self.id_bits), "data": Out(self.data_bits)}
        )

    def credit(self) -> Signature:
        """A credit, seen from the router whose queue has a free place again."""
        return Signature({"valid": Out(1), "channel": Out(self.channel_bits)})


class _Queue:
    """The registers of one input queue."""

    def __init__(self, spec: RouterSpec, number: int) -> None:
        name = f"queue_{number}"
        self.count = Signal(range(spec.queue_flits + 1), name=f"{name}_count")
        self.first = Signal(range(max(2, spec.queue_flits)), name=f"{name}_first")
        self.wanted = Signal(spec.ports, name=f"{name}_wanted")
        self.held = Signal(spec.ports, name=f"{name}_held")
        self.holding = [Signal(spec.channel_bits, name=f"{name}_holding_{port}") for port in range(spec.ports)]
        self.masks = [Signal(spec.ports, name=f"{name}_mask_{place}") for place in range(spec.queue_flits)]
        self.enters = Signal(name=f"{name}_enters")
        self.leaves = Signal(name=f"{name}_leaves")
        self.won = Signal(spec.ports, name=f"{name}_won")
        self.sent = Signal(spec.ports, name=f"{name}_sent")
        self.flit = Signal(spec.id_bits + spec.data_bits, name=f"{name}_flit")


class MeshRouter(Component):
    """Flits arrive at ``inputs`` and leave by ``outputs``; ``credits_out`` go back to the senders of ``inputs``.

    ``credits_in`` come from behind ``outputs``; output 0 needs none, its endpoint takes a flit in every cycle.
    ``table_write`` puts ``table_ports`` (a bit per output) at ``table_id`` of the bank that is not in use; ``swap``
    makes it the one in use from the next cycle on; an FPGA starts with ``initial_table``. ``idle`` is 1 while no flit
    is inside.
    """

    def __init__(self, spec: RouterSpec | None = None, initial_table: Sequence[int] = ()) -> None:
        self.spec = spec = spec or RouterSpec()
        self.initial_table = initial_table
        super().__init__(
            {
                "inputs": In(spec.link()).array(spec.ports),
                "outputs": Out(spec.link()).array(spec.ports),
                "credits_in": In(spec.credit()).array(spec.ports),
                "credits_out": Out(spec.credit()).array(spec.ports),
                "table_write": In(1),
                "table_id": In(spec.id_bits),
                "table_ports": In(spec.ports),
                "swap": In(1),
                "bank": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Virtual-channel and switch allocation on the state at the start of the cycle; departures, arrivals."""
        m = Module()
        spec = self.spec
        queues = [_Queue(spec, number) for number in range(spec.queues)]
        taken = [
            [Signal(name=f"taken_{port}_{channel}") for channel in range(spec.virtual_channels)]
            for port in range(spec.ports)
        ]
        credits = self._credits(m, queues)
        self._allocate_queues(m, queues, taken)
        self._allocate_crossbar(m, queues, credits)
        self._depart(m, queues, taken)
        self._arrive(m, queues)
        self._hold(m, queues)
        self._return_credits(m, queues)
        busy = Cat(*(queue.count.any() for queue in queues), *(output.valid for output in self.outputs))
        m.d.comb += self.idle.eq(~(busy.any() | self._crossbar_valid.any()))
        return m

    def _credits(self, m: Module, queues: list[_Queue]) -> list[list[Value]]:
        """Credit counters of every output and virtual channel; the local output needs none."""
        spec = self.spec
        counters: list[list[Value]] = [[]]
        for port in range(1, spec.ports):
            back = self.credits_in[port]
            row: list[Value] = []
            for channel in range(spec.virtual_channels):
                left = Signal(range(spec.queue_flits + 1), init=spec.queue_flits, name=f"credits_{port}_{channel}")
                uses = Cat(*(queue.sent[port] & (queue.holding[port] == channel) for queue in queues)).any()
                m.d.sync += left.eq(left + (back.valid & (back.channel == channel)) - uses)
                row.append(left)
            counters.append(row)
        return counters

    def _allocate_queues(self, m: Module, queues: list[_Queue], taken: list[list[Signal]]) -> None:
        """Virtual-channel allocation: every free output channel offers itself to an input queue, which accepts one."""
        spec = self.spec
        turns = [Signal(range(max(2, spec.virtual_channels)), name=f"channel_turn_{q}") for q in range(spec.queues)]
        seen: list[Value] = list(turns)  # the pointers as a port sees them: lower ports have moved them already
        for port in range(spec.ports):
            wants = Signal(spec.queues, name=f"wants_{port}")
            m.d.comb += wants.eq(Cat(*(queue.count.any() & queue.wanted[port] for queue in queues)))
            queue_turns = [Signal(range(spec.queues), name=f"queue_turn_{port}_{c}") for c in range(len(taken[port]))]
            offers = [
                first_from(m, wants & (~used).replicate(spec.queues), turn, f"offer_{port}_{channel}")
                for channel, (used, turn) in enumerate(zip(taken[port], queue_turns, strict=True))
            ]
            accepted = []
            for number, queue in enumerate(queues):
                takes = first_from(m, Cat(*(offer[number] for offer in offers)), seen[number], f"take_{port}_{number}")
                accepted.append(takes)
                m.d.comb += queue.won[port].eq(takes.any())
                with m.If(takes.any()):
                    m.d.sync += [turns[number].eq(after(takes)), queue.holding[port].eq(index_of(takes))]
                seen[number] = Mux(takes.any(), after(takes), seen[number])
            for channel, turn in enumerate(queue_turns):
                winner = Cat(*(takes[channel] for takes in accepted))
                with m.If(winner.any()):
                    m.d.sync += [taken[port][channel].eq(1), turn.eq(after(winner))]

    def _allocate_crossbar(self, m: Module, queues: list[_Queue], credits: list[list[Value]]) -> None:
        spec, channels = self.spec, self.spec.virtual_channels
        send_turns = [Signal(range(max(2, channels)), name=f"send_turn_{port}") for port in range(spec.ports)]
        accept_turns = [Signal(range(spec.ports), name=f"accept_turn_{port}") for port in range(spec.ports)]
        grants: list[Signal] = []  # per output: the queue it grants, one-hot
        grant_turns = [Signal(range(spec.ports), name=f"grant_turn_{port}") for port in range(spec.ports)]
        for port in range(spec.ports):
            sends = Signal(spec.queues, name=f"sends_{port}")
            m.d.comb += sends.eq(Cat(*(self._can_send(queue, port, credits) for queue in queues)))
            of_source = [sends[source * channels : (source + 1) * channels] for source in range(spec.ports)]
            asking = Cat(*(each.any() for each in of_source))
            source = first_from(m, asking, grant_turns[port], f"grant_input_{port}")
            choices = [
                first_from(m, each, send_turns[number], f"grant_channel_{port}_{number}")
                & source[number].replicate(channels)
                for number, each in enumerate(of_source)
            ]
            granted = Signal(spec.queues, name=f"granted_{port}")
            m.d.comb += granted.eq(Cat(*choices))
            grants.append(granted)
        for source in range(spec.ports):
            part = slice(source * channels, (source + 1) * channels)
            offers = Cat(*(granted[part].any() for granted in grants))
            first = first_from(m, offers, accept_turns[source], f"accept_{source}")
            chosen = Signal(channels, name=f"sending_{source}")
            m.d.comb += chosen.eq(select(first, [granted[part] for granted in grants]))
            with m.If(offers.any()):
                m.d.sync += [accept_turns[source].eq(after(first)), send_turns[source].eq(after(chosen))]
            for channel in range(channels):
                queue = queues[source * channels + channel]
                for port in range(spec.ports):
                    m.d.comb += queue.sent[port].eq(chosen[channel] & grants[port][source * channels + channel])
                    with m.If(queue.sent[port]):
                        m.d.sync += grant_turns[port].eq((source + 1) % spec.ports)
                stays = queue.wanted | (queue.held & ~queue.sent)
                m.d.comb += queue.leaves.eq(chosen[channel] & ~stays.any())

    def _can_send(self, queue: _Queue, port: int, credits: list[list[Value]]) -> Value:
        asks = queue.count.any() & queue.held[port]
        if port == 0:
            return asks
        return asks & (Array(credits[port])[queue.holding[port]] != 0)

    def _depart(self, m: Module, queues: list[_Queue], taken: list[list[Signal]]) -> None:
        """Through the crossbar's register and the link's to the output."""
        spec = self.spec
        self._crossbar_valid = Signal(spec.ports)
        for port in range(spec.ports):
            leaving = Cat(*(queue.sent[port] for queue in queues))
            channel = select(leaving, [queue.holding[port] for queue in queues])
            flit = select(leaving, [queue.flit for queue in queues])
            crossbar = Signal(spec.channel_bits + len(flit), name=f"crossbar_{port}")
            output = self.outputs[port]
            m.d.sync += [
                self._crossbar_valid[port].eq(leaving.any()),
                crossbar.eq(Cat(channel, flit)),
                output.valid.eq(self._crossbar_valid[port]),
                Cat(output.channel, output.id, output.data).eq(crossbar),
            ]
            for number in range(spec.virtual_channels):
                with m.If(leaving.any() & (channel == number)):
                    m.d.sync += taken[port][number].eq(0)

    def _arrive(self, m: Module, queues: list[_Queue]) -> None:
        """Route computation of every arriving flit, and its write to the input queue."""
        spec = self.spec
        m.submodules.table = table = RoutingTable(spec.ports, spec.ports, spec.id_bits, self.initial_table)
        m.d.comb += [
            table.write.eq(self.table_write),
            table.write_id.eq(self.table_id),
            table.write_ports.eq(self.table_ports),
            table.swap.eq(self.swap),
            self.bank.eq(table.bank),
        ]
        for port, arriving in enumerate(self.inputs):
            m.d.comb += table.ids[port].eq(arriving.id)
            for channel in range(spec.virtual_channels):
                number = port * spec.virtual_channels + channel
                queue = queues[number]
                m.d.comb += queue.enters.eq(arriving.valid & (arriving.channel == channel))
                m.submodules[f"flits_{number}"] = flits = Memory(
                    shape=spec.id_bits + spec.data_bits, depth=max(2, spec.queue_flits), init=[]
                )
                self._ring(m, queue, flits, Cat(arriving.id, arriving.data), table.ports[port])

    def _ring(self, m: Module, queue: _Queue, flits: Memory, flit: Value, mask: Value) -> None:
        """A queue's storage: flits in LUTRAM, their output masks in registers."""
        depth = self.spec.queue_flits
        write = flits.write_port()
        read = flits.read_port(domain="comb")
        place = Signal.like(queue.first)
        next_first = Signal.like(queue.first)
        total = Signal(range(2 * depth + 1))
        m.d.comb += [
            total.eq(queue.first + queue.count),
            place.eq(Mux(total >= depth, total - depth, total)),
            next_first.eq(Mux(queue.first == depth - 1, 0, queue.first + 1)),
            write.addr.eq(place),
            write.data.eq(flit),
            write.en.eq(queue.enters),
            read.addr.eq(queue.first),
            queue.flit.eq(read.data),
        ]
        m.d.sync += queue.count.eq(queue.count + queue.enters - queue.leaves)
        with m.If(queue.leaves):
            m.d.sync += queue.first.eq(next_first)
        with m.If(queue.enters):
            m.d.sync += Array(queue.masks)[place].eq(mask)
        becomes_first = (queue.count == 0) | (queue.leaves & (queue.count == 1))
        with m.If(queue.leaves & (queue.count > 1)):
            m.d.sync += queue.wanted.eq(Array(queue.masks)[next_first])
        with m.Elif(queue.enters & becomes_first):
            m.d.sync += queue.wanted.eq(mask)
        with m.Else():
            m.d.sync += queue.wanted.eq(queue.wanted & ~queue.won)

    def _hold(self, m: Module, queues: list[_Queue]) -> None:
        for queue in queues:
            m.d.sync += queue.held.eq((queue.held & ~queue.sent) | queue.won)

    def _return_credits(self, m: Module, queues: list[_Queue]) -> None:
        """Return a credit when a flit has left by all its outputs; it travels for ``credit_delay_cycles``."""
        channels = self.spec.virtual_channels
        for port, back in enumerate(self.credits_out):
            leaves = Cat(*(queues[port * channels + channel].leaves for channel in range(channels)))
            travelling: Value = Cat(leaves.any(), index_of(leaves))
            for step in range(self.spec.credit_delay_cycles):
                wire = Signal(len(travelling), name=f"credit_wire_{port}_{step}")
                m.d.sync += wire.eq(travelling)
                travelling = wire
            m.d.sync += Cat(back.valid, back.channel).eq(travelling)
