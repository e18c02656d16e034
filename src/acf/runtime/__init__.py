"""A CUDA-style runtime: devices, buffers, streams and events, and programs that run the products of training.

The same program runs on every backend: plain NumPy ("reference"), the CPU kernels ("cpu"), the GPU kernels ("cuda"), a
modelled accelerator ("sim") and the fabric in gates ("rtl").
"""

from acf.runtime.backends import BACKENDS
from acf.runtime.copy import memcpy, memcpy_async
from acf.runtime.device import Device, DeviceProperties
from acf.runtime.errors import (
    DeviceError,
    IllegalAddressError,
    InvalidDeviceError,
    InvalidDevicePointerError,
    InvalidImageError,
    InvalidResourceHandleError,
    InvalidValueError,
    LaunchFailureError,
    MemoryAllocationError,
    NoBinaryForDeviceError,
    NoDeviceError,
    NotReadyError,
    NotSupportedError,
)
from acf.runtime.launch import launch, synchronize
from acf.runtime.link import HostLink
from acf.runtime.memory import Buffer, HostBuffer, Region
from acf.runtime.product import Argument, Product, WeightBlocks
from acf.runtime.program import Program
from acf.runtime.recording import Recording, record
from acf.runtime.rtl_spec import RtlSpec
from acf.runtime.stream import Event, Stream
from acf.runtime.timeline import Cost, Span, Timeline, Usage

__all__ = [
    "BACKENDS",
    "Argument",
    "Buffer",
    "Cost",
    "Device",
    "DeviceError",
    "DeviceProperties",
    "Event",
    "HostBuffer",
    "HostLink",
    "IllegalAddressError",
    "InvalidDeviceError",
    "InvalidDevicePointerError",
    "InvalidImageError",
    "InvalidResourceHandleError",
    "InvalidValueError",
    "LaunchFailureError",
    "MemoryAllocationError",
    "NoBinaryForDeviceError",
    "NoDeviceError",
    "NotReadyError",
    "NotSupportedError",
    "Product",
    "Program",
    "Recording",
    "Region",
    "RtlSpec",
    "Span",
    "Stream",
    "Timeline",
    "Usage",
    "WeightBlocks",
    "launch",
    "memcpy",
    "memcpy_async",
    "record",
    "synchronize",
]
