"""What every backend has in common, and the dict of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import ClassVar

from acf.errors import MissingDependencyError
from acf.extras import require
from acf.lowering import FabricShape
from acf.runtime.errors import InvalidDeviceError, NoBinaryForDeviceError, NoDeviceError
from acf.runtime.link import HostLink
from acf.runtime.memory import HostStorage, Region, Storage
from acf.runtime.numbers import Values
from acf.runtime.product import Product
from acf.runtime.program import Program, fabric_number
from acf.runtime.rtl_spec import RtlSpec
from acf.runtime.timeline import Cost
from acf.sim.accelerator import AcceleratorSpec

Architecture = str | Path | AcceleratorSpec
"""What names an architecture: a shipped name, a TOML file or a Spec."""

BACKENDS: dict[str, str] = {
    "reference": "acf.runtime.backends.reference:Reference",
    "cpu": "acf.runtime.backends.cpu:Cpu",
    "cuda": "acf.runtime.backends.cuda:Cuda",
    "sim": "acf.runtime.backends.sim:Simulator",
    "rtl": "acf.runtime.backends.rtl:Rtl",
}
"""The backends by name, as module and class; each is imported when a device of it is made."""

PACKAGES = {"rtl": ("amaranth", "pyosys")}
"""The optional packages that a backend needs."""


@dataclass(frozen=True)
class Tensor:
    """A region of device memory by ``place``, and the ``version`` of the buffer: another one is other content."""

    place: str
    version: int

    @classmethod
    def of(cls, region: Region) -> "Tensor":
        """The present content of a region."""
        return cls(f"{region.buffer.number}+{region.offset}", region.buffer.version)


@dataclass(frozen=True, eq=False)
class Launched:
    """A program with its operands, float32, and where operands and result lie in device memory."""

    program: Program
    operands: Sequence[Values]
    tensors: Sequence[Tensor]
    result: Tensor


class Backend(ABC):
    """Memory and arithmetic of a device. ``spec`` is the architecture that is modelled, None where nothing is."""

    name: ClassVar[str]
    spec: AcceleratorSpec | None = None

    def __init__(self, architecture: Architecture | None, link: HostLink, walked: bool = False) -> None:
        if architecture is not None:
            raise InvalidDeviceError(f"{self.name} models no architecture, so it takes no spec; use sim or rtl")
        self.link, self.walked = link, walked

    @property
    def fabric(self) -> FabricShape | None:
        """The fabric that programs are compiled for; None: programs stay portable."""
        return None

    def allocate(self, nbytes: int) -> Storage:
        """Memory of one buffer, zeros."""
        return HostStorage(nbytes)

    def compile(self, product: Product) -> Program:
        """The program of a product for this backend."""
        return Program(product)

    def check(self, program: Program) -> None:
        """Refuse a program that was compiled for another fabric, before it is submitted."""
        fabric = self.fabric
        if program.fabric and fabric is not None and program.fabric != fabric_number(fabric):
            raise NoBinaryForDeviceError(
                f"{program.name} was compiled for fabric {program.fabric:016x}, and this device is "
                f"{fabric_number(fabric):016x}; compile its product for this device: device.compile(program.product)"
            )

    def run(self, program: Program, regions: Sequence[Region]) -> Cost:
        """Read the operands, compute, write the result."""
        if program.product is None:
            return Cost()
        *inputs, result = program.arguments
        operands = [argument.decode(region.read()) for argument, region in zip(inputs, regions, strict=False)]
        *tensors, written = (Tensor.of(region) for region in regions)
        values, cost = self.compute(Launched(program, operands, tensors, written))
        regions[-1].write(result.encode(values))
        return cost

    @abstractmethod
    def compute(self, launched: Launched) -> tuple[Values, Cost]:
        """The result of a product, float32, and what it took."""

    def replay(self, launched: Launched, result: Values) -> Cost:
        """What a recorded launch takes; ``result`` has the zeros of its result. Values are of no interest."""
        return self.compute(launched)[1]

    def copy_cost(self, direction: str, nbytes: int, measured_s: float) -> Cost:
        """What a copy took; ``direction`` is "h2d", "d2h" or "d2d", ``measured_s`` the time on this machine."""
        return Cost(measured_s)


def measured(compute: Callable[[], Values]) -> tuple[Values, Cost]:
    """The result of a call, and the seconds it took on this machine."""
    began = perf_counter()
    result = compute()
    return result, Cost(perf_counter() - began)


def make_backend(
    name: str, architecture: Architecture | RtlSpec | None, link: HostLink, walked: bool = False
) -> Backend:
    """The backend of that name."""
    if name not in BACKENDS:
        raise InvalidDeviceError(f"backend {name!r} is not one of {', '.join(BACKENDS)}; use one of these names")
    module, kind = BACKENDS[name].split(":")
    try:
        require(*PACKAGES.get(name, ()), needed_by=f"the backend {name!r}")
    except MissingDependencyError as error:
        raise NoDeviceError(f"{error}, or use another of {', '.join(BACKENDS)}") from error
    backend: Backend = getattr(import_module(module), kind)(architecture, link, walked)
    return backend
