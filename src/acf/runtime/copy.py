"""Copies between host and device, and on the device."""

from typing import TYPE_CHECKING, Any

import numpy as np

from acf.runtime.errors import IllegalAddressError, InvalidDevicePointerError, InvalidValueError
from acf.runtime.memory import Buffer, Bytes, HostBuffer, Region
from acf.runtime.stream import Stream

if TYPE_CHECKING:
    from acf.runtime.device import Device


def memcpy(destination: Any, source: Any, stream: Stream | None = None) -> None:
    """Copy the bytes of ``source`` to the beginning of ``destination``, and wait for it.

    Either side is device memory (a `Buffer` or `Region`), a `HostBuffer`, or a contiguous NumPy array or CPU tensor;
    at least one is device memory. The copy follows everything submitted to ``stream`` before.
    """
    _submit(destination, source, stream).synchronize()


def memcpy_async(destination: Any, source: Any, stream: Stream | None = None) -> None:
    """`memcpy` without waiting. Only a `HostBuffer` is read or written later.

    As in CUDA, the content of another host array is taken at once, and a copy to one waits.
    """
    used = _submit(destination, source, stream)
    if not isinstance(destination, Buffer | Region | HostBuffer):
        used.synchronize()


def region_of(memory: Buffer | Region) -> Region:
    """A buffer as the region of all its bytes."""
    if not isinstance(memory, Buffer | Region):
        raise InvalidDevicePointerError(
            f"{type(memory).__name__} is no device memory; pass a Buffer of device.malloc, or a Region of one"
        )
    return Region(memory, 0, memory.nbytes) if isinstance(memory, Buffer) else memory


def _submit(destination: Any, source: Any, stream: Stream | None) -> Stream:
    to_device, from_device = (isinstance(each, Buffer | Region) for each in (destination, source))
    if to_device and from_device:
        return _copy_on_device(region_of(destination), region_of(source), stream)
    if to_device:
        return _copy_in(region_of(destination), source, stream)
    if from_device:
        return _copy_out(destination, region_of(source), stream)
    raise InvalidValueError(
        f"neither {type(destination).__name__} nor {type(source).__name__} is device memory; use NumPy for host arrays"
    )


def _copy_in(destination: Region, source: Any, stream: Stream | None) -> Stream:
    content = host_bytes(source)
    if not isinstance(source, HostBuffer):
        content = content.copy()
    device, target = destination.buffer.device, _fitting(destination, content.size)
    return device._copy("h2d", [target], target.nbytes, lambda: target.write(content), stream)


def _copy_out(destination: Any, source: Region, stream: Stream | None) -> Stream:
    content = host_bytes(destination)
    if source.nbytes > content.size:
        raise IllegalAddressError(
            f"{source.nbytes} bytes do not fit in the {content.size} of the host array; copy a region of that size"
        )

    def run() -> None:
        content[: source.nbytes] = source.read()

    return source.buffer.device._copy("d2h", [source], source.nbytes, run, stream)


def _copy_on_device(destination: Region, source: Region, stream: Stream | None) -> Stream:
    target = _fitting(destination, source.nbytes)
    device = destination.buffer.device
    return device._copy("d2d", [target, source], source.nbytes, lambda: target.write(source.read()), stream)


def _fitting(destination: Region, nbytes: int) -> Region:
    """The first ``nbytes`` of a region."""
    if nbytes > destination.nbytes:
        raise IllegalAddressError(
            f"{nbytes} bytes do not fit in a region of {destination.nbytes} bytes; allocate more, or copy fewer"
        )
    return Region(destination.buffer, destination.offset, nbytes)


def host_bytes(memory: Any) -> Bytes:
    """The bytes of a `HostBuffer`, a contiguous array or a contiguous CPU tensor, sharing its memory."""
    if isinstance(memory, HostBuffer):
        return memory.array
    if type(memory).__module__.split(".")[0] == "torch":
        import torch

        memory = memory.detach().view(torch.uint8).numpy() if memory.is_contiguous() else memory
    array = memory if isinstance(memory, np.ndarray) else None
    if array is None or not array.flags.c_contiguous:
        raise InvalidValueError(
            f"{type(memory).__name__} is no contiguous NumPy array, CPU tensor or HostBuffer; copy it into one"
        )
    return array.reshape(-1).view(np.uint8)


def check_regions(device: "Device", regions: list[Region]) -> None:
    """Refuse freed memory and memory of another device."""
    for region in regions:
        region.check(device)
