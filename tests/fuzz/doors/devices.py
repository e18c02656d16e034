"""The runtime: buffers, copies, products, launches, streams and events, with values that do not fit."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from acf import runtime
from tests.fuzz.values import plain, strange, strange_array


def device_calls(rng: Random, folder: Path) -> None:
    """A few calls on one device, each with a strange value in one place; the device stays usable."""
    device = runtime.Device(rng.choice(("reference", "sim", "cpu")), memory_bytes=1 << 20)
    for _ in range(3):
        with plain(TypeError, ValueError, runtime.DeviceError):
            rng.choice(CALLS)(rng, device)
    buffer = device.upload(np.ones(4), "fp32")
    assert np.array_equal(device.download(buffer, (4,)), np.ones(4))


def _product(rng: Random, device: runtime.Device) -> None:
    values: dict[str, Any] = {
        "phase": "forward", "rows": 4, "weight": runtime.WeightBlocks.dense(8, 8), "operand_dtype": "fp32",
        "result_dtype": "fp32", "name": "fc",
    }  # fmt: skip
    values[rng.choice(sorted(values))] = strange(rng)
    program = device.compile(runtime.Product(**values))
    if sum(each.nbytes for each in program.arguments) < 1 << 20:
        runtime.launch(program, [device.malloc(each.nbytes) for each in program.arguments])
    device.synchronize()


def _launch(rng: Random, device: runtime.Device) -> None:
    product = runtime.Product(phase="forward", rows=4, weight=runtime.WeightBlocks.dense(8, 8), operand_dtype="fp32")
    memory: list[Any] = [device.malloc(each.nbytes) for each in product.arguments]
    memory[rng.randrange(3)] = rng.choice((None, device.malloc(3), 0, np.ones(4), memory[0], "x"))
    runtime.launch(device.compile(product), memory[: rng.choice((3, 3, 2, 0))])
    device.synchronize()


CALLS: tuple[Any, ...] = (
    _product,
    _launch,
    lambda rng, device: device.malloc(strange(rng)),
    lambda rng, device: device.free(strange(rng)),
    lambda rng, device: device.upload(strange_array(rng), rng.choice(("bf16", "fp32", "x", None))),
    lambda rng, device: device.download(device.malloc(64), strange(rng)),
    lambda rng, device: device.download(device.malloc(64), (strange(rng),)),
    lambda rng, device: device.download(device.malloc(64), (16,), strange(rng)),
    lambda rng, device: runtime.memcpy(device.malloc(64), strange_array(rng)),
    lambda rng, device: runtime.memcpy(strange_array(rng), device.malloc(64)),
    lambda rng, device: runtime.memcpy(device.malloc(64), device.malloc(128)),
    lambda rng, device: runtime.Region(device.malloc(64), strange(rng), 4),
    lambda rng, device: runtime.memcpy(runtime.Region(device.malloc(64), 0, strange(rng)), np.ones(2)),
    lambda rng, device: device.host_work(strange(rng)),
    lambda rng, device: device.charge("compute", runtime.Cost(strange(rng))),
    lambda rng, device: device.stream().wait(strange(rng)),
    lambda rng, device: device.event().record(strange(rng)),
    lambda rng, device: device.event().elapsed(device.event()),
    lambda rng, device: runtime.HostBuffer(strange(rng)),
    lambda rng, device: runtime.WeightBlocks.from_mask(strange_array(rng), (8, 8)),
    lambda rng, device: runtime.WeightBlocks.from_mask([[True]], (strange(rng), 8)),
    lambda rng, device: runtime.WeightBlocks.dense(strange(rng), 8),
    lambda rng, device: runtime.Device("sim", strange(rng)),
    lambda rng, device: runtime.Device(strange(rng)),
    lambda rng, device: runtime.Device("sim", memory_bytes=strange(rng)),
    lambda rng, device: runtime.HostLink(strange(rng)),
    lambda rng, device: runtime.Program.from_bytes(strange(rng)),
)
"""Calls of the runtime with one strange value."""
