"""What a DRAM is made of: timing in its own cycles, currents, channels and banks, queues, and where addresses go."""

from dataclasses import dataclass, fields

from acf.cost.dram import DRAM_FIGURES
from acf.errors import ArchitectureError

ADDRESS_FIELDS = frozenset({"column", "channel", "bank", "group", "row"})

ADDRESS_ORDERS: dict[str, tuple[str, ...]] = {
    # As in DRAMsim3's configuration: a run stays in one row of one channel as long as it can.
    "hbm2": ("column", "channel", "bank", "group", "row"),
    # Bursts go round the bank groups: within one group DDR4 reaches but two thirds of its bandwidth.
    "ddr4-2400": ("group", "column", "channel", "bank", "row"),
}
"""Fields of an address, from the lowest bits on, by kind of memory."""

TWO_COMMAND_BUSES = frozenset({"hbm2"})
"""Kinds of memory that take a row and a column command in one cycle."""


@dataclass(frozen=True, kw_only=True)
class DramTiming:
    """Least cycles of the memory clock between commands; the names in brackets are JEDEC's."""

    activate_to_column: int  # tRCD
    precharge_to_activate: int  # tRP
    activate_to_precharge: int  # tRAS
    read_latency: int  # CL
    write_latency: int  # CWL
    burst_cycles: int
    column_to_column_same_group: int  # tCCD_L
    column_to_column_other_group: int  # tCCD_S
    activate_to_activate_same_group: int  # tRRD_L
    activate_to_activate_other_group: int  # tRRD_S
    four_activates: int  # tFAW
    read_to_precharge: int  # tRTP
    write_recovery: int  # tWR
    write_to_read_same_group: int  # tWTR_L
    write_to_read_other_group: int  # tWTR_S
    bus_turnaround: int  # tRTRS
    refresh: int  # tRFC
    refresh_interval: int  # tREFI

    def __post_init__(self) -> None:
        for field in fields(self):
            _require_positive(field.name, getattr(self, field.name))


@dataclass(frozen=True, kw_only=True)
class DramPower:
    """Supply in volts and currents in milliamperes of one device; the names in brackets are JEDEC's."""

    supply: float  # VDD
    activate_precharge: float  # IDD0
    precharge_standby: float  # IDD2N
    active_standby: float  # IDD3N
    read_burst: float  # IDD4R
    write_burst: float  # IDD4W
    refresh_burst: float  # IDD5AB


MOST = 1 << 40
"""Of anything that a memory has; a window without refresh has an interval of that many cycles."""

MOST_SLOTS = 1 << 22
"""Entries of the queues of all channels, which the simulator holds."""


@dataclass(frozen=True, kw_only=True)
class DramSpec:
    """``channels`` independent channels of ``bank_groups`` x ``banks_per_group`` banks with one open row each.

    ``address_order`` names the fields of an address from the lowest bits on, a burst being the unit. A column and a
    row command may leave in the same cycle where the device has two command buses (``two_command_buses``, HBM).
    A row is closed after ``row_hit_limit`` hits when another is wanted. Queues are bounded: ``transaction_queue_depth``
    reads and as many writes wait in a channel, ``bank_queue_depth`` at every bank.
    """

    timing: DramTiming
    power: DramPower
    cycle_ns: float
    channels: int = 2
    bank_groups: int = 4
    banks_per_group: int = 4
    rows: int = 32768
    row_bytes: int = 2048
    burst_bytes: int = 64
    devices: int = 1
    bank_queue_depth: int = 8
    transaction_queue_depth: int = 32
    row_hit_limit: int = 4
    two_command_buses: bool = True
    address_order: tuple[str, ...] = ("column", "channel", "bank", "group", "row")

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type in (int, float):
                _require_positive(field.name, getattr(self, field.name))
            if field.type is int and type(getattr(self, field.name)) is not int:
                raise ArchitectureError(f"{field.name} {getattr(self, field.name)} is no whole number; give one")
        slots = self.channels * self.banks * (self.bank_queue_depth + 1) + self.channels * self.transaction_queue_depth
        if slots > MOST_SLOTS:
            raise ArchitectureError(
                f"{self.channels} channels of {self.banks} banks have {slots} entries of queues, more than "
                f"{MOST_SLOTS}; use fewer channels or banks, or shorter queues"
            )
        if self.row_bytes % self.burst_bytes:
            raise ArchitectureError(
                f"row_bytes {self.row_bytes} is no multiple of burst_bytes {self.burst_bytes}; use one that is"
            )
        if len(self.address_order) != len(ADDRESS_FIELDS) or set(self.address_order) != ADDRESS_FIELDS:
            raise ArchitectureError(
                f"address_order {self.address_order} does not name each of "
                f"{', '.join(sorted(ADDRESS_FIELDS))} once; name them from the lowest bits on"
            )

    @property
    def banks(self) -> int:
        """Banks of a channel."""
        return self.bank_groups * self.banks_per_group

    @property
    def columns(self) -> int:
        """Bursts in a row."""
        return self.row_bytes // self.burst_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of all channels."""
        return self.channels * self.banks * self.rows * self.row_bytes

    @property
    def peak_bytes_per_s(self) -> float:
        """Bytes per second when every channel bursts in every cycle."""
        return 1e9 * self.channels * self.burst_bytes / (self.timing.burst_cycles * self.cycle_ns)


def dram_spec(kind: str, channels: int) -> DramSpec:
    """``channels`` channels of a kind of memory in `MEMORIES`.

    >>> dram_spec("hbm2", 2).peak_bytes_per_s / 1e9
    64.0
    """
    if kind not in DRAM_FIGURES:
        raise ArchitectureError(f"no DRAM figures for {kind!r}; use one of {', '.join(DRAM_FIGURES)}")
    figures = DRAM_FIGURES[kind]
    whole = {name: int(figures[name].value) for name in figures}
    return DramSpec(
        timing=DramTiming(**{field.name: whole[field.name] for field in fields(DramTiming)}),
        power=DramPower(**{field.name: figures[field.name].value for field in fields(DramPower)}),
        cycle_ns=figures["cycle_ns"].value,
        channels=channels,
        two_command_buses=kind in TWO_COMMAND_BUSES,
        address_order=ADDRESS_ORDERS[kind],
        **{field.name: whole[field.name] for field in fields(DramSpec) if field.name in figures and field.type is int},
    )


def _require_positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
        raise ArchitectureError(f"{name} {str(value)[:40]} is no number above 0 and up to {MOST}; give such a number")


MEMORIES: dict[str, DramSpec] = {"hbm2": dram_spec("hbm2", 2), "ddr4-2400": dram_spec("ddr4-2400", 1)}
"""The memories this model has figures for, with the channels of their default."""
