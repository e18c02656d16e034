"""Meters of energy: the GPU's own counter (NVML) or the processor's (RAPL), with the idle power measured beside it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from acf.errors import require_kind

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class EnergyReading:
    """Energy of a stretch of work.

    ``joules`` is all that the counter saw in ``seconds``; ``idle_watts`` what the device drew just before, idle but
    ready; ``source`` names the counter. Where nothing can be measured ``joules`` is None and ``source`` says why.
    """

    seconds: float
    joules: float | None
    idle_watts: float | None
    source: str

    @property
    def active_joules(self) -> float | None:
        """Joules beyond those of an idle device; None where nothing was measured."""
        if self.joules is None or self.idle_watts is None:
            return None
        return self.joules - self.idle_watts * self.seconds


class EnergyMeter:
    """Context manager that measures the energy of what runs inside it.

    ``idle_seconds`` is how long the idle power is measured before the block begins. ``synchronize`` is called at both
    ends, so that queued device work is inside.

    >>> with EnergyMeter("cpu", idle_seconds=0.0) as meter:
    ...     total = sum(range(1000))
    >>> meter.reading.seconds >= 0.0
    True
    """

    def __init__(self, device: str, idle_seconds: float = 1.0, synchronize: Callable[[], None] | None = None) -> None:
        require_kind(device, str, "device", "pass cpu, cuda or cuda:1")
        self.read_joules, self.source = _counter(device)
        self.synchronize = synchronize or (lambda: None)
        self.idle_seconds = idle_seconds
        self.reading = EnergyReading(0.0, None, None, self.source)

    def __enter__(self) -> "EnergyMeter":
        self.synchronize()
        self._idle_watts = self._measure_idle()
        self._started, self._joules = time.perf_counter(), self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.synchronize()
        joules, seconds = self._read(), time.perf_counter() - self._started
        spent = None if joules is None or self._joules is None else joules - self._joules
        self.reading = EnergyReading(seconds, spent, self._idle_watts, self.source)

    def joules_so_far(self) -> float | None:
        """Joules since the block began, while it runs; None where nothing can be measured."""
        joules = self._read()
        return None if joules is None or self._joules is None else joules - self._joules

    def _read(self) -> float | None:
        return self.read_joules() if self.read_joules else None

    def _measure_idle(self) -> float | None:
        if self.read_joules is None or self.idle_seconds <= 0.0:
            return None
        started, joules = time.perf_counter(), self.read_joules()
        time.sleep(self.idle_seconds)
        return (self.read_joules() - joules) / (time.perf_counter() - started)


def _counter(device: str) -> tuple[Callable[[], float] | None, str]:
    """A function that reads joules since some start, and its name; or None and the reason why there is none."""
    return _nvml_counter(device) if device.startswith("cuda") else _rapl_counter()


def _nvml_counter(device: str) -> tuple[Callable[[], float] | None, str]:
    try:
        import pynvml
    except ImportError:
        return None, "not measurable here: nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2] or 0))
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        return None, f"not measurable here: NVML says {error}"
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3, "NVML total energy of the board"


def _rapl_counter() -> tuple[Callable[[], float] | None, str]:
    packages = sorted(POWERCAP.glob("intel-rapl:[0-9]"))
    try:
        limits_uj = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        for package in packages:
            (package / "energy_uj").read_text()
    except OSError as error:
        return None, f"not measurable here: RAPL cannot be read ({error.strerror})"
    if not packages:
        return None, "not measurable here: the system shows no RAPL counter"
    counter = _WrappingCounter([package / "energy_uj" for package in packages], limits_uj)
    return counter.joules, "RAPL energy of all packages"


class _WrappingCounter:
    """Adds up counters that start again from 0 at their limit."""

    def __init__(self, files: list[Path], limits_uj: list[int]) -> None:
        self.files, self.limits_uj = files, limits_uj
        self.last_uj = [int(file.read_text()) for file in files]
        self.total_uj = 0

    def joules(self) -> float:
        """Joules since the counter was made; to be read more often than it wraps (every few minutes)."""
        for index, file in enumerate(self.files):
            now = int(file.read_text())
            self.total_uj += (now - self.last_uj[index]) % self.limits_uj[index]
            self.last_uj[index] = now
        return self.total_uj * 1e-6
