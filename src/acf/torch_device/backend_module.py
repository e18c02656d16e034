"""``torch.acf``: what torch asks of the module of a device type, as it asks `torch.cuda`.

Every op of the device draws random numbers from the host's generator, so its state is the host's.
"""

from collections.abc import Sequence
from types import TracebackType

import torch
from torch import Tensor

from acf.torch_device.memory import DEVICE_INDEX, MEMORY_USE, NAME
from acf.torch_device.session import SESSION

AMP_DTYPES = [torch.bfloat16]


def is_available() -> bool:
    """Whether the device can be used: always, once it is registered."""
    return True


def is_initialized() -> bool:
    """Whether the device is ready: always."""
    return True


def device_count() -> int:
    """Number of devices: one."""
    return 1


def current_device() -> int:
    """Index of the current device."""
    return DEVICE_INDEX


def set_device(index: object) -> None:
    """Choose the current device; there is one."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("acf")`` takes."""
    return AMP_DTYPES


def synchronize(device: object = None) -> None:
    """Wait until everything submitted to the runtime device is complete."""
    SESSION.engine.device.synchronize()


def current_stream(device: object = None) -> torch.Stream:
    """The stream in which this thread's copies and products run."""
    return torch.accelerator.current_stream()


def set_stream(stream: torch.Stream) -> None:
    """Let this thread's copies and products run in ``stream`` from now on."""
    torch.accelerator.set_stream(stream)


def stream(chosen: torch.Stream) -> torch.Stream:
    """``with torch.acf.stream(s):`` runs what is inside in ``s``."""
    return chosen


class Stream(torch.Stream):
    """``torch.acf.Stream()`` is a new stream of the device."""

    def __new__(cls, device: object = None, priority: int = 0) -> torch.Stream:  # type: ignore[misc]
        """A plain `torch.Stream`."""
        return torch.Stream(device=NAME, priority=priority)


class Event(torch.Event):
    """``torch.acf.Event(enable_timing=True)`` is an event of the device."""

    def __new__(cls, enable_timing: bool = False) -> torch.Event:  # type: ignore[misc]
        """A plain `torch.Event`."""
        return torch.Event(device=NAME, enable_timing=enable_timing)


def memory_allocated(device: object = None) -> int:
    """Bytes of live tensors on the device."""
    return MEMORY_USE.current


def max_memory_allocated(device: object = None) -> int:
    """The most bytes of live tensors at a time."""
    return MEMORY_USE.peak


def reset_peak_memory_stats(device: object = None) -> None:
    """Let `max_memory_allocated` begin from now."""
    MEMORY_USE.reset_peak()


def manual_seed_all(seed: int) -> None:
    """Seed the device's generator, which is the host's: `torch.manual_seed` has seeded it."""


def manual_seed(seed: int) -> None:
    """The same for the current device."""


def get_rng_state(device: object = None) -> Tensor:
    """State of the generator that ops of the device draw from."""
    return torch.get_rng_state()


def set_rng_state(state: Tensor, device: object = None) -> None:
    """Set it."""
    torch.set_rng_state(state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices."""
    return [get_rng_state()]


def set_rng_state_all(states: Sequence[Tensor]) -> None:
    """Set the states of all devices."""
    set_rng_state(states[0])


def _is_in_bad_fork() -> bool:
    return False


class device:  # noqa: N801  # torch.cuda.device has this name
    """``with torch.acf.device(0):`` makes a device the current one; there is one."""

    def __init__(self, index: object) -> None:
        self.index = index

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass
