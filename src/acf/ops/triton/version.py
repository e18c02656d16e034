"""Which Triton can compile the kernels; torch brings one, and an old torch an old one."""

import re

import torch

from acf.errors import MissingDependencyError

FIRST_VERSION = (3, 6)
"""Triton 3.4.0 and 3.5.1 fail in their software pipeliner on the products of chips that have TMA; 3.6.0 does not."""

FIRST_CAPABILITY_WITH_TMA = (9, 0)


def check_triton(installed: str, capability: tuple[int, int]) -> None:
    """Refuse a Triton of this version where it cannot compile the kernels for a chip of this capability."""
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    version = (int(numbers[1]), int(numbers[2])) if numbers else FIRST_VERSION
    if capability >= FIRST_CAPABILITY_WITH_TMA and version < FIRST_VERSION:
        raise MissingDependencyError(
            f"Triton {installed} cannot compile the block-sparse products for compute capability "
            f"{capability[0]}.{capability[1]}, which takes {FIRST_VERSION[0]}.{FIRST_VERSION[1]} or newer; install a "
            "torch that brings one, such as 2.13, or train on the CPU"
        )


def check_triton_on(device: torch.device) -> None:
    """Refuse the installed Triton where it cannot compile the kernels for ``device``."""
    import triton

    if torch.version.hip is None:
        check_triton(triton.__version__, torch.cuda.get_device_capability(device))
