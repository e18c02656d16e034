"""``torch.acf``: what torch asks of the module of a device type, as it asks `torch.cuda`.

Every op of the device draws random numbers from the host's generator, so its state is the host's.
"""

from collections.abc import Sequence
from types import TracebackType

import torch
from torch import Tensor

from acf.runtime import Event, Stream
from acf.torch_device.memory import DEVICE_INDEX
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


def current_stream(device: object = None) -> Stream:
    """The stream of the runtime device that products run in."""
    return SESSION.engine.compute


def event() -> Event:
    """A new event of the runtime device; ``torch.acf.event().record(torch.acf.current_stream())`` marks a time."""
    return SESSION.engine.device.event()


def memory_allocated(device: object = None) -> int:
    """Bytes of the runtime device's memory in use."""
    runtime_device = SESSION.engine.device
    return runtime_device.properties.memory_bytes - runtime_device.free_bytes


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
