"""`MeshRouter` cycle by cycle, in plain Python; the order of things is that of `acf.sim.mesh`'s description."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from acf.rtl.design.mesh.router import RouterSpec


@dataclass(frozen=True)
class Flit:
    """A flit on a link: its virtual channel there, the id it is routed by, and what it carries."""

    channel: int
    id: int
    data: int


@dataclass
class _QueueState:
    flits: deque[tuple[Flit, int]] = field(default_factory=deque)  # with the outputs it leaves by, as bits
    wanted: int = 0
    held: dict[int, int] = field(default_factory=dict)  # output to virtual channel


class RouterModel:
    """One router; `step` takes what arrives in a cycle and gives what is on its outputs in that cycle."""

    def __init__(self, spec: RouterSpec) -> None:
        ports, channels = spec.ports, spec.virtual_channels
        self.spec = spec
        self.banks = [[0] * (1 << spec.id_bits), [0] * (1 << spec.id_bits)]
        self.bank = 0
        self._queues = [_QueueState() for _ in range(spec.queues)]
        self._taken = [[False] * channels for _ in range(ports)]
        self._credits = [[spec.queue_flits] * channels for _ in range(ports)]
        self._queue_turn = [[0] * channels for _ in range(ports)]
        self._channel_turn = [0] * spec.queues
        self._send_turn, self._grant_turn, self._accept_turn = [0] * ports, [0] * ports, [0] * ports
        self._crossbar: list[Flit | None] = [None] * ports
        self._link: list[Flit | None] = [None] * ports
        nothing: list[int | None] = [None] * ports
        self._credit_wire = deque([list(nothing) for _ in range(spec.credit_delay_cycles + 1)])

    @property
    def idle(self) -> bool:
        """Whether no flit is inside."""
        return not any(queue.flits for queue in self._queues) and not any([*self._crossbar, *self._link])

    def outputs(self) -> tuple[list[Flit | None], list[int | None]]:
        """What is on the links and on the credit wires in this cycle, by port; a credit is its virtual channel."""
        return list(self._link), list(self._credit_wire[0])

    def step(
        self,
        arriving: Sequence[Flit | None],
        credits: Sequence[int | None],
        write: tuple[int, int] | None = None,
        swap: bool = False,
    ) -> None:
        """Let the cycle end in which these flits and credits (virtual channels) arrive.

        ``write`` is the (id, outputs) for the bank not in use.
        """
        wants, sends = self._requests()
        winners = self._choose_queues(wants)
        departing, made = self._send(sends)
        for port, channel, queue in winners:
            self._taken[port][channel] = True
            self._queues[queue].wanted &= ~(1 << port)
            self._queues[queue].held[port] = channel
        for port, returned in enumerate(credits):
            if returned is not None and port:
                self._credits[port][returned] += 1
        self._arrive(arriving)
        self._link, self._crossbar = self._crossbar, departing
        self._credit_wire.popleft()
        self._credit_wire.append(made)
        if write is not None:
            self.banks[not self.bank][write[0]] = write[1]
        self.bank ^= swap

    def _requests(self) -> tuple[list[set[int]], list[set[int]]]:
        """Per output: queues that need an output queue, and queues that have one with a credit."""
        ports = range(self.spec.ports)
        wants: list[set[int]] = [set() for _ in ports]
        sends: list[set[int]] = [set() for _ in ports]
        for number, queue in enumerate(self._queues):
            if queue.flits:
                for port in ports:
                    if queue.wanted >> port & 1:
                        wants[port].add(number)
                    if port in queue.held and (port == 0 or self._credits[port][queue.held[port]]):
                        sends[port].add(number)
        return wants, sends

    def _choose_queues(self, wants: Sequence[set[int]]) -> list[tuple[int, int, int]]:
        """(output, virtual channel, input queue) of every output queue that is allocated in this cycle."""
        channels, queues = self.spec.virtual_channels, self.spec.queues
        won = []
        for port, asking in enumerate(wants):
            offers: dict[int, set[int]] = {}
            for channel in range(channels):
                if asking and not self._taken[port][channel]:
                    queue = _first_from(asking, self._queue_turn[port][channel], queues)
                    offers.setdefault(queue, set()).add(channel)
            for queue, offered in offers.items():
                channel = _first_from(offered, self._channel_turn[queue], channels)
                self._queue_turn[port][channel] = (queue + 1) % queues
                self._channel_turn[queue] = (channel + 1) % channels
                won.append((port, channel, queue))
        return won

    def _send(self, sends: Sequence[set[int]]) -> tuple[list[Flit | None], list[int | None]]:
        """What enters the crossbar, by output, and the credits of places that become free, by input."""
        ports, channels = self.spec.ports, self.spec.virtual_channels
        granted: dict[int, int] = {}
        for port, asking in enumerate(sends):
            if asking:
                source = _first_from({queue // channels for queue in asking}, self._grant_turn[port], ports)
                of_source = {queue % channels for queue in asking if queue // channels == source}
                granted[port] = source * channels + _first_from(of_source, self._send_turn[source], channels)
        departing: list[Flit | None] = [None] * ports
        made: list[int | None] = [None] * ports
        for source in range(ports):
            offers = {port for port, queue in granted.items() if queue // channels == source}
            if not offers:
                continue
            first = _first_from(offers, self._accept_turn[source], ports)
            number = granted[first]
            self._accept_turn[source] = (first + 1) % ports
            self._send_turn[source] = (number + 1) % channels
            for port in (port for port in offers if granted[port] == number):
                self._grant_turn[port] = (source + 1) % ports
                departing[port] = self._leave(number, port)
            queue = self._queues[number]
            if not queue.wanted and not queue.held:
                queue.flits.popleft()
                queue.wanted = queue.flits[0][1] if queue.flits else 0
                made[source] = number % channels
        return departing, made

    def _leave(self, number: int, port: int) -> Flit:
        queue = self._queues[number]
        channel = queue.held.pop(port)
        self._taken[port][channel] = False
        self._credits[port][channel] -= port > 0
        flit = queue.flits[0][0]
        return Flit(channel, flit.id, flit.data)

    def _arrive(self, arriving: Sequence[Flit | None]) -> None:
        for port, flit in enumerate(arriving):
            if flit is not None:
                queue = self._queues[port * self.spec.virtual_channels + flit.channel]
                mask = self.banks[self.bank][flit.id]
                queue.flits.append((flit, mask))
                if len(queue.flits) == 1:
                    queue.wanted = mask


def _first_from(members: set[int], turn: int, size: int) -> int:
    """The first member at or after ``turn`` in a ring of ``size``."""
    return min(members, key=lambda member: (member - turn) % size)
