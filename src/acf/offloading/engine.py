"""Running products of torch tensors on a device of `acf.runtime`: operands travel, programs run, results come back."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

from acf.runtime import Buffer, Device, HostBuffer, Product, Program, Region, Stream, launch, memcpy_async

MOST_PROGRAMS = 4096
"""Compiled programs that are kept; beyond, the one unused for longest is dropped."""

RESULT_DTYPES = {"forward": "bf16", "input_grad": "bf16", "weight_grad": "fp32"}
"""Formats in which results travel: activations and their gradients as operands do, weight gradients in full."""

_FROM_BYTES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class DeviceMatrix:
    """Values in device memory, bf16; the memory is returned when the last reference to this object is gone."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        finalize(self, _free, buffer)


def _free(buffer: Buffer) -> None:
    if not buffer.is_freed:
        buffer.free()


class ProductEngine:
    """A device, its two streams (copies and products), and the programs compiled for it.

    Copies to the host of one product overlap with the next product. The host's own work between two calls is measured
    on this machine and put on the device's timeline.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.compute, self.copies = device.stream(), device.stream()
        self.current_stream: Callable[[], Stream] = lambda: self.compute
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._left_s: float | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The host is busy with the device in this block, and with its own work between blocks."""
        if self._left_s is not None:
            self.device.host_work(perf_counter() - self._left_s)
        try:
            yield
        finally:
            self._left_s = perf_counter()

    def send(self, values: Tensor) -> DeviceMatrix:
        """Copy a host tensor to the device as bf16, row-major."""
        content = bf16_bytes(values)
        matrix = DeviceMatrix(self.device.malloc(content.size))
        memcpy_async(matrix.buffer, content, self.copies)
        return matrix

    def program(self, key: Hashable, product: Product) -> Program:
        """The program of a product, compiled once for every ``key``."""
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        program = self.device.compile(product)
        self._programs[key] = program
        if len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return program

    def run(self, program: Program, a: Buffer | Region, b: Buffer | Region) -> "PendingResult":
        """Launch a program after the copies submitted so far, and the copy of its result after it."""
        result = program.arguments[-1]
        output = DeviceMatrix(self.device.malloc(result.nbytes))
        host = HostBuffer(result.nbytes)
        self.compute.wait(self.device.event().record(self.copies))
        launch(program, [a, b, output.buffer], self.compute)
        self.copies.wait(self.device.event().record(self.compute))
        memcpy_async(host, output.buffer, self.copies)
        return PendingResult(self, program, host, output)

    def run_resident(self, product: Product, a: Tensor, b: Tensor) -> Tensor:
        """The result of a product whose operands are on the device already, where it stays: nothing is copied."""
        operands = [self._placed(values) for values in (a, b)]
        output = DeviceMatrix(self.device.malloc(product.arguments[-1].nbytes))
        with self.entered():
            program, stream = self.program(product_key(product), product), self.current_stream()
            launch(program, [*(each.buffer for each in operands), output.buffer], stream)
            stream.flush()
        return _decoded(output.buffer[:].read(), program)

    def charge_copy(self, direction: str, nbytes: int) -> None:
        """Put a copy over the host link on the timeline, of data that is where it should be; the host waits for d2h."""
        with self.entered():
            cost = self.device.backend.copy_cost(direction, nbytes, 0.0)
            stream = self.current_stream()
            self.device.charge(direction, cost, stream)
            if direction == "d2h":
                stream.synchronize()

    def _placed(self, values: Tensor) -> DeviceMatrix:
        """Values of device memory as bf16, in the layout that programs read."""
        content = bf16_bytes(values)
        matrix = DeviceMatrix(self.device.malloc(content.size))
        matrix.buffer[:].write(content)
        return matrix


class PendingResult:
    """The result of a launched program, on its way to the host."""

    def __init__(self, engine: ProductEngine, program: Program, host: HostBuffer, output: DeviceMatrix) -> None:
        self._engine, self._program, self._host, self._output = engine, program, host, output

    def wait(self) -> Tensor:
        """Wait for the copy; the values in the format they travelled in."""
        self._engine.copies.synchronize()
        return _decoded(self._host.array, self._program)


def product_key(product: Product) -> Hashable:
    """Equal for products that one program computes."""
    weight = product.weight
    coordinates = weight.block_rows.tobytes(), weight.block_columns.tobytes()
    shape = weight.rows, weight.columns, weight.block_shape
    return product.phase, product.rows, product.conv, product.result_dtype, product.name, shape, coordinates


def _decoded(raw: Any, program: Program) -> Tensor:
    result = program.arguments[-1]
    return torch.from_numpy(raw).view(_FROM_BYTES[result.dtype]).reshape(result.shape)


def bf16_bytes(values: Tensor) -> Any:
    """The bytes of a tensor's values rounded to bf16, row-major, uint8 ``[2 * numel]``."""
    rounded = values.detach().to(dtype=torch.bfloat16, device="cpu").contiguous()
    return rounded.reshape(-1).view(torch.uint8).numpy()
