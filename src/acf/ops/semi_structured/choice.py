"""Which library computes the 2:4 products of a layer, or why none does.

``ACF_NM_KERNELS`` in the environment overrides the choice: ``dense`` keeps every N:M layer on masked dense products,
and the name of a library demands it for every linear 2:4 layer, with an error that says why where it cannot be had.
"""

import os
from dataclasses import dataclass
from typing import NamedTuple

import torch

from acf.errors import SparsityError
from acf.ops.dense import dense_chosen
from acf.sparse.compiler_constant import compiler_constant

SETTING = os.environ.get("ACF_NM_KERNELS", "auto")
DTYPES = (torch.float16, torch.bfloat16)


class Machine(NamedTuple):
    """What a device offers: its compute capability, None where it is no NVIDIA GPU, and the libraries torch has."""

    capability: tuple[int, int] | None
    libraries: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """What a library takes: the compute capabilities from ``least`` to ``last_major``, and multiples of ``features``.

    Both dimensions of the weight must be such multiples, because either may be the compressed one.
    """

    least: tuple[int, int]
    last_major: int | None
    features: int

    def why_not(self, machine: Machine) -> str:
        """Why these limits rule the machine out, or an empty string."""
        assert machine.capability is not None
        major, minor = machine.capability
        if machine.capability < self.least:
            return f"compute capability {major}.{minor} is below {self.least[0]}.{self.least[1]}"
        if self.last_major is not None and major > self.last_major:
            return f"compute capability {major}.{minor} is above {self.last_major}.x"
        return ""


LIMITS = {
    # Multiples of 128: smaller ones are padded when they are compressed, to a size that the library alone knows.
    "cusparselt": Limits(least=(8, 0), last_major=None, features=128),
    # torch's kernels are built for 8.x and refuse every other GPU.
    "cutlass": Limits(least=(8, 0), last_major=8, features=64),
}
"""The libraries by name; the first is the automatic choice."""

LEAST_WEIGHTS = 4096 * 11008
"""Weights from which the automatic choice takes the library. Below, its calls, of 0.9 ms or more each on an H200, take
longer than masked dense products (docs/results/nm24.md)."""


class Choice(NamedTuple):
    """The library that computes a product, or an empty name and the reason why none does."""

    library: str
    reason: str


def choose(machine: Machine, dtype: torch.dtype, shape: tuple[int, int], setting: str = "auto") -> Choice:
    """The library for a 2:4 weight of ``shape`` whose product is computed in ``dtype``.

    >>> choose(Machine((9, 0), ("cusparselt",)), torch.bfloat16, (8192, 28672))
    Choice(library='cusparselt', reason='')
    >>> choose(Machine((9, 0), ("cusparselt",)), torch.float32, (8192, 28672)).reason
    'float32 products; float16 and bfloat16 are taken'
    """
    if setting not in ("auto", "dense", *LIMITS):
        raise SparsityError(
            f"ACF_NM_KERNELS {setting!r} is no choice; use one of auto, dense, {', '.join(LIMITS)}, or unset it"
        )
    if setting == "dense":
        return Choice("", "ACF_NM_KERNELS=dense")
    library = next(iter(LIMITS)) if setting == "auto" else setting
    reason = _why_not(library, machine, dtype, shape)
    if not reason and setting == "auto" and shape[0] * shape[1] < LEAST_WEIGHTS:
        reason = f"{shape[0]} x {shape[1]} weights are faster masked; {LEAST_WEIGHTS:,} are the least that gain"
    return Choice("" if reason else library, reason)


def _why_not(library: str, machine: Machine, dtype: torch.dtype, shape: tuple[int, int]) -> str:
    limits = LIMITS[library]
    if machine.capability is None:
        return "not on an NVIDIA GPU"
    if reason := limits.why_not(machine):
        return reason
    if library not in machine.libraries:
        return f"this torch comes without {library}"
    if dtype not in DTYPES:
        return f"{str(dtype).removeprefix('torch.')} products; float16 and bfloat16 are taken"
    if any(size % limits.features for size in shape):
        return f"{shape[0]} x {shape[1]} are not multiples of {limits.features}"
    return ""


_MACHINES: dict[torch.device, Machine] = {}


def machine_of(device: torch.device) -> Machine:
    """What ``device`` offers; asked of torch once."""
    if device not in _MACHINES:
        _MACHINES[device] = _examine(device)
    return _MACHINES[device]


def _examine(device: torch.device) -> Machine:
    if device.type != "cuda" or torch.version.cuda is None:
        return Machine(None, ())
    with_cusparselt = torch.backends.cusparselt.is_available()
    return Machine(torch.cuda.get_device_capability(device), ("cusparselt", "cutlass")[0 if with_cusparselt else 1 :])


@compiler_constant
def _library_for(device: torch.device, dtype: torch.dtype, rows: int, cols: int) -> str:
    library, reason = choose(machine_of(device), dtype, (rows, cols), SETTING)
    if not library and SETTING in LIMITS:
        raise SparsityError(f"ACF_NM_KERNELS={SETTING} cannot compute this layer: {reason}; use auto, or unset it")
    return library


def library_for(device: torch.device, dtype: torch.dtype, shape: tuple[int, int]) -> str:
    """The library for a 2:4 weight of ``shape`` on ``device``, or an empty string; none in `acf.ops.dense_products`."""
    if dense_chosen():
        return ""
    return _library_for(device, dtype, *shape)


def describe_layer(device: torch.device, shape: tuple[int, int]) -> Choice:
    """The library for a 2:4 weight of ``shape`` on ``device`` in bfloat16 or float16, or why there is none."""
    if dense_chosen():
        return Choice("", "acf.ops.dense_products is active")
    return choose(machine_of(device), torch.bfloat16, shape, SETTING)
