"""The base of every modelled accelerator: a frozen Spec that counts the cycles of one matrix product."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields, replace
from functools import reduce
from math import ceil, isfinite
from operator import add
from typing import Any, ClassVar

from acf.cost import dram_figure, sram_pj_per_byte
from acf.cost.vector import vector_lane_mm2, vector_operation_pj
from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.sim.memory import DramTraffic
from acf.sim.vector import VectorUnit
from acf.trace import BitTensor

VECTOR_BANK_BYTES = 131_072
"""Bank of on-chip memory that a vector unit reads and writes, or all of that memory where it is smaller."""

MEMORY_PLANS = ("lru", "planned")
"""lru: whole tensors, the least recently used leaves. planned: parts of tensors, the one whose next use is farthest
leaves; normalisation by groups of channels; additions read their second operand where it lies."""

FEWEST_CHANNELS = 64
"""Channels of the narrowest normalised tensors of the networks here: they bound the groups of a planned memory."""

SRAM_NODES = (22, 65)
"""Ends of the table of `acf.cost.sram`, in nm; vector units beyond are charged as at the nearer end."""


@dataclass(frozen=True)
class SetUp:
    """What a machine's controllers do before the first packet of an operation, if another operation can hide it.

    Compute units wait in the first ``cycles`` of the operation and draw ``energy_j`` in them. In ``spare_cycles`` of
    the operation a controller is free, and prepares the next one.
    """

    cycles: int = 0
    energy_j: dict[str, float] = field(default_factory=dict)
    spare_cycles: int = 0


@dataclass(frozen=True)
class ComputeCount:
    """Counts of one matrix product without stalls for DRAM; ``lost_slots`` by reason, ``energy_j`` by component.

    ``effectual_macs + sum(lost_slots.values()) == cycles * macs_per_cycle``, which `acf.sim.simulate` checks.
    ``streamed_bytes`` cross the DRAM pins besides tensors that are kept on chip. ``other_cycles`` are the step's share
    of a topology update in the machine's controller; 0 where that is not modelled. ``set_up`` is part of ``cycles``,
    and lost as "fill". ``counters``: what the energy of control is charged for, by name, with "cycles"; empty where a
    machine does not count it.
    """

    cycles: int
    dense_macs: int
    effectual_macs: int
    lost_slots: dict[str, int] = field(default_factory=dict)
    energy_j: dict[str, float] = field(default_factory=dict)
    streamed_bytes: int = 0
    other_cycles: int = 0
    set_up: SetUp = field(default_factory=SetUp)
    counters: dict[str, float] = field(default_factory=dict)

    def after(self, previous: "ComputeCount") -> "ComputeCount":
        """This operation right behind ``previous``, whose spare cycles hide as much of the set-up as they can."""
        hidden = min(self.set_up.cycles, previous.set_up.spare_cycles)
        if not hidden:
            return self
        slots_per_cycle = (self.effectual_macs + sum(self.lost_slots.values())) // self.cycles
        share = hidden / self.set_up.cycles
        saved_j = {name: joules * share for name, joules in self.set_up.energy_j.items()}
        return replace(
            self,
            cycles=self.cycles - hidden,
            lost_slots=self.lost_slots | {"fill": self.lost_slots["fill"] - hidden * slots_per_cycle},
            energy_j={name: joules - saved_j.get(name, 0.0) for name, joules in self.energy_j.items()},
            set_up=SetUp(spare_cycles=min(self.set_up.spare_cycles, self.cycles - hidden)),
            counters=self.counters | {"cycles": self.counters["cycles"] - hidden} if self.counters else {},
        )

    def __add__(self, following: "ComputeCount") -> "ComputeCount":
        """Both, one after the other."""
        other = following.after(self)
        first = self if self.cycles else other
        lost, energy, counters = Counter(self.lost_slots), Counter(self.energy_j), Counter(self.counters)
        lost.update(other.lost_slots)
        energy.update(other.energy_j)
        counters.update(other.counters)
        return ComputeCount(
            self.cycles + other.cycles,
            self.dense_macs + other.dense_macs,
            self.effectual_macs + other.effectual_macs,
            dict(lost),
            dict(energy),
            self.streamed_bytes + other.streamed_bytes,
            self.other_cycles + other.other_cycles,
            replace(first.set_up, spare_cycles=other.set_up.spare_cycles),
            dict(counters),
        )


MOST_UNITS = 1 << 20
"""Of anything that a machine has many of; memories of bytes may have more."""

MOST_BYTES = 1 << 40

LEAST = 1e-18
"""Smaller is not above 0 for any quantity of a machine, and would divide by nothing."""


MOST = 1e24
"""Of any quantity that is no count, such as bytes or operations per second."""


def _most(item: Field[Any]) -> float:
    if item.type not in (int, "int"):
        return MOST
    return MOST_BYTES if item.name.endswith("_bytes") else MOST_UNITS


@dataclass(frozen=True, kw_only=True)
class AcceleratorSpec(ABC):
    """Base of the Specs: clock, technology and memory system; subclasses add their compute units.

    Fields have no defaults: a TOML file in ``acf/sim/configs`` gives every one (`acf.sim.registry.spec` loads it).
    ``on_chip_bytes`` hold tensors: whole ones under least-recently-used replacement (``memory_plan`` "lru"), or what a
    compiler that knows the step keeps ("planned", `acf.sim.planned_memory`). ``value_bytes`` is the size of an
    operand's value, on chip and off. The DRAM pins carry ``dram_pin_bytes_per_s`` at peak, of which the machine
    sustains ``dram_sustained_share``. ``vector_lanes`` operations per cycle do what is no matrix product (0: one lane
    for every two MACs). ``name`` labels results; empty: the name of the registered Spec it equals.
    """

    kind: ClassVar[str]
    """What a TOML file names as its ``kind``."""

    clock_hz: float
    technology_nm: int
    value_bytes: int
    on_chip_bytes: int
    dram_kind: str
    dram_pin_bytes_per_s: float
    dram_sustained_share: float
    vector_lanes: int = field(default=0, metadata={"zero_allowed": True})
    memory_plan: str = "lru"
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            least_is_zero = item.metadata.get("zero_allowed", False)
            if isinstance(value, bool) and item.type not in (bool, "bool"):
                raise ArchitectureError(f"{item.name} {value} is no number; give one")
            if not isinstance(value, int | float) or isinstance(value, bool) or (least_is_zero and value == 0):
                continue
            if value < LEAST:
                raise ArchitectureError(f"{item.name} {value} must be above 0; give a positive number")
            if not isfinite(value) or value > _most(item):
                raise ArchitectureError(f"{item.name} {value} is more than any machine has; give a smaller number")
        if self.dram_sustained_share > 1:
            raise ArchitectureError(
                f"dram_sustained_share {self.dram_sustained_share} is above 1; give a share of the pins' peak rate"
            )
        dram_figure(self.dram_kind)  # refuses an unknown kind
        if self.memory_plan not in MEMORY_PLANS:
            raise ArchitectureError(
                f"memory_plan {self.memory_plan!r} is not one of {', '.join(MEMORY_PLANS)}; use one of these names"
            )

    def require_65nm(self) -> None:
        """Refuse another node where the energy figures are published for 65 nm only."""
        if self.technology_nm != 65:
            raise ArchitectureError(
                f"technology_nm {self.technology_nm}: the energy of these compute units is published for 65 nm only; "
                "use 65"
            )

    @property
    @abstractmethod
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""

    @abstractmethod
    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""

    def count_with_traffic(self, gemm: Gemm, traffic: DramTraffic) -> ComputeCount:
        """`count` while ``traffic`` crosses the pins, for machines whose memory controllers are part of the model."""
        return self.count(gemm)

    def count_batch(self, gemms: Iterable[Gemm], traffic: DramTraffic) -> ComputeCount:
        """Independent products of ``traffic`` each; in sequence, unless a machine spreads its cores over them."""
        return reduce(add, (self.count_with_traffic(gemm, traffic) for gemm in gemms), ComputeCount(0, 0, 0))

    def stored_bytes(self, bits: BitTensor, role: str) -> int:
        """Bytes of a tensor in memory: its non-zero values and a bitmap, or all values where that is less.

        ``role`` is "activation", "weight" or "gradient", for machines that compress only some of them.
        """
        compressed = bits.nonzeros * self.value_bytes + ceil(bits.size / 8)
        return min(compressed, bits.size * self.value_bytes)

    @property
    def dram_sustained_bytes_per_s(self) -> float:
        """Bytes per second that DRAM delivers in the long run."""
        return self.dram_pin_bytes_per_s * self.dram_sustained_share

    def dram_cycles(self, dram_bytes: int) -> int:
        """The fewest cycles in which ``dram_bytes`` cross the pins, at the sustained rate."""
        return ceil(dram_bytes / self.dram_sustained_bytes_per_s * self.clock_hz)

    @property
    def dram_pj_per_bit(self) -> float:
        """Picojoules of one bit to or from DRAM."""
        return dram_figure(self.dram_kind).value

    @property
    def keeps_tensors(self) -> bool:
        """Whether on-chip memory keeps whole tensors; where it only holds tiles, ``count`` says what is streamed."""
        return True

    @property
    def vector_unit(self) -> VectorUnit:
        """What does normalisation, activation, softmax, residual, loss and optimizer, beside the matrix products."""
        bank_bytes = min(self.on_chip_bytes, VECTOR_BANK_BYTES)
        node = min(max(self.technology_nm, SRAM_NODES[0]), SRAM_NODES[1])
        return VectorUnit(
            lanes=self.vector_lanes or max(1, self.macs_per_cycle // 2),
            value_bytes=self.value_bytes,
            operation_pj=vector_operation_pj(self.technology_nm),
            sram_read_pj_per_byte=sram_pj_per_byte(node, bank_bytes),
            sram_write_pj_per_byte=sram_pj_per_byte(node, bank_bytes, write=True),
            channel_groups=FEWEST_CHANNELS // self.output_channels if self.memory_plan == "planned" else 0,
        )

    @property
    def output_channels(self) -> int:
        """Output channels that a product completes together: the side of a tile of the output."""
        return 16

    @property
    def has_update_engine(self) -> bool:
        """Whether `count` has the optimizer's time, so that the vector unit takes none for it."""
        return False

    @property
    def vector_area_mm2(self) -> dict[str, float]:
        """Square millimetres of the vector unit; empty where the machine's area is not known or already has it."""
        lanes = self.vector_unit.lanes * vector_lane_mm2(self.technology_nm)
        return {"vector": lanes} if self.area_mm2 else {}

    @property
    def launch_cycles(self) -> int:
        """Cycles to launch an operation, overlapped by nothing; 0 where a machine runs one program throughout."""
        return 0

    @property
    def static_power_w(self) -> float:
        """Watts drawn throughout, idle or not; 0 where the energy per cycle includes them."""
        return 0.0

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component, split as the energy is; empty where no area is known."""
        return {}

    @property
    def leakage_w(self) -> float:
        """Watts of leakage; 0 where no figure is known."""
        return 0.0

    def standing_j(self, seconds: float) -> dict[str, float]:
        """Joules that leak, or are drawn whatever runs, in ``seconds``."""
        static = {"static": seconds * self.static_power_w} if self.static_power_w else {}
        return {"leakage": seconds * self.leakage_w} | static

    @property
    def peak_flops(self) -> float:
        """Floating-point operations per second if every slot were used."""
        return 2.0 * self.macs_per_cycle * self.clock_hz
