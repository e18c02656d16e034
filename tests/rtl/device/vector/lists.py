"""Lists of vector descriptors on a device, and values for them."""

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.vector.descriptor import VectorDescriptor

LANES, FLIT = 8, 16
LIST_PAGE = 15
VECTOR_WORK = 16  # a bit of the status
NO_MASK = np.zeros((1, LANES), dtype=bool)
NO_CONSTANTS = np.zeros((5, LANES), dtype=np.float32)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def narrow(values: np.ndarray) -> bytes:
    return bf16_bits(values).astype("<u2").tobytes()


def run_list(device: DeviceSimulation, descriptors: list[VectorDescriptor], most_cycles: int = 2000) -> int:
    """Run a list; the bits of the register ``error``."""
    device.load(LIST_PAGE * 4096, b"".join(each.content() for each in descriptors))
    device.write_register("vector_page", LIST_PAGE)
    device.write_register("vector_count", len(descriptors))
    for _ in range(most_cycles // 50):
        device.run_for(50)
        if not device.read_register("status") & VECTOR_WORK:
            return device.read_register("error")
    raise AssertionError(f"still busy after {most_cycles} cycles")
