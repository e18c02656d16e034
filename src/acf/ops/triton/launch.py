"""Launching kernels, and repeating a launch without Triton's Python overhead.

At every launch Triton binds the arguments, looks up the compiled kernel and encodes the tensor descriptors, which takes
the host longer than a small product takes the device. In a repeated launch only the tensors' addresses differ: a
`PreparedLaunch` keeps the rest and calls the compiled launcher itself. That launcher is internal to Triton, so this is
done for the versions in `READ_VERSIONS` only; others launch as usual.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getclosurevars
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from acf.ops.dense import dense_chosen

READ_VERSIONS = ("3.5.", "3.6.")
"""Versions of Triton whose launcher is known to take the arguments that `PreparedLaunch` passes."""

REMEMBERED_ADDRESSES = 4096
"""Addresses of an operand whose descriptors are cached; when full, the cache is emptied."""


@dataclass(frozen=True)
class Tiled:
    """A tensor that a kernel accesses in boxes of a fixed shape, through a tensor descriptor (TMA)."""

    tensor: Tensor
    box: list[int]

    @property
    def key(self) -> Hashable:
        """Everything that a launch depends on, except the tensor's address."""
        return (self.tensor.dtype, self.tensor.shape, self.tensor.stride(), tuple(self.box))

    def descriptor(self) -> Any:
        """The descriptor that Triton launches with."""
        return TensorDescriptor.from_tensor(self.tensor, self.box)


@dataclass(frozen=True)
class Described:
    """The descriptors of one operand, by address."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    layout: Any
    by_address: dict[int, list[Any]] = field(default_factory=dict)

    def at(self, tensor: Tensor, address: int) -> list[Any]:
        """The launcher's arguments for ``tensor``, which lies at ``address``."""
        known = self.by_address.get(address)
        if known is None:
            from triton.backends.nvidia.driver import make_tensordesc_arg

            if len(self.by_address) >= REMEMBERED_ADDRESSES:
                self.by_address.clear()
            source = SimpleNamespace(base=tensor, shape=self.shape, strides=self.strides, padding="zero")
            known = self.by_address[address] = make_tensordesc_arg(source, self.layout)
        return known


class PreparedLaunch:
    """A compiled kernel with all arguments bound except the addresses of its operands."""

    def __init__(
        self,
        launcher: Callable[..., None],
        programs: int,
        device: int,
        head: tuple[Any, ...],
        operands: list[Described | None],
        tail: tuple[Any, ...],
    ) -> None:
        self._launcher, self._programs, self._device = launcher, programs, device
        self._head, self._operands, self._tail = head, operands, tail
        self._hooks = triton.knobs.runtime.launch_enter_hook

    def __call__(self, *tensors: Tensor) -> bool:
        """Launch with ``tensors`` as the operands; False, with nothing launched, where Triton has to launch."""
        arguments: list[Any] = []
        for tensor, described in zip(tensors, self._operands, strict=True):
            address = tensor.data_ptr()
            if address & 15:
                return False  # the kernel was compiled for aligned operands
            if described is None:
                arguments.append(address)
            else:
                arguments += described.by_address.get(address) or described.at(tensor, address)
        if self._hooks.calls:
            return False  # a profiler listens to Triton's launches
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        self._launcher(self._programs, 1, 1, stream, *self._head, *arguments, *self._tail)
        return True


Known = TypeVar("Known")


def known_launch(prepared: Mapping[Hashable, Known], signature: Hashable) -> Known | None:
    """The prepared launch of a problem; None within `acf.ops.dense_products`, which uses no sparse kernel."""
    return None if dense_chosen() else prepared.get(signature)


_PREPARED: dict[Hashable, PreparedLaunch] = {}


def launch(
    kernel: Any,
    programs: int,
    operands: Sequence[Tensor | Tiled],
    sizes: Sequence[int],
    *,
    num_warps: int,
    num_stages: int = 3,
    **constants: Any,
) -> PreparedLaunch | None:
    """Run ``kernel`` in ``programs`` programs. Its parameters are the operands, the ``sizes``, then the constants.

    Gives the same launch for other tensors of the same shapes and dtypes; None where Triton has to launch them.
    """
    key = (
        kernel.fn, programs, num_warps, num_stages, *sizes, *constants.items(),
        *[operand.key if isinstance(operand, Tiled) else operand.dtype for operand in operands],
    )  # fmt: skip
    tensors = [operand.tensor if isinstance(operand, Tiled) else operand for operand in operands]
    known = _PREPARED.get((tensors[0].get_device(), key))
    if known is not None and known(*tensors):
        return known
    arguments = [operand.descriptor() if isinstance(operand, Tiled) else operand for operand in operands]
    compiled = kernel[(programs,)](*arguments, *sizes, **constants, num_warps=num_warps, num_stages=num_stages)
    if compiled is None or not triton.__version__.startswith(READ_VERSIONS):
        return None
    values = dict(zip(kernel.arg_names[len(tensors) :], sizes, strict=False)) | constants
    prepared = _prepare(compiled, programs, operands, tuple(values[name] for name in kernel.arg_names[len(tensors) :]))
    if prepared is not None:
        _PREPARED[tensors[0].get_device(), key] = prepared
    return prepared


def _prepare(
    compiled: Any, programs: int, operands: Sequence[Tensor | Tiled], tail: tuple[Any, ...]
) -> PreparedLaunch | None:
    """The launch of a compiled kernel without Triton's Python; None where it takes more than that."""
    run, tiled = compiled.run, [operand for operand in operands if isinstance(operand, Tiled)]
    layouts = list(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    launcher = getclosurevars(run.launch).nonlocals.get("launcher") if tiled else run.launch
    if launcher is None or len(layouts) != len(tiled) or run.global_scratch_size or run.profile_scratch_size:
        return None
    tensors = [operand.tensor if isinstance(operand, Tiled) else operand for operand in operands]
    if any(tensor.data_ptr() % 16 for tensor in tensors):
        return None
    flags = (compiled.function, run.launch_cooperative_grid, run.launch_pdl)
    described = [
        Described(tuple(operand.tensor.shape), operand.tensor.stride(), layouts.pop(0))
        if isinstance(operand, Tiled)
        else None
        for operand in operands
    ]
    # No scratch memory, then the kernel's metadata, then no hooks.
    head = (*flags, None, None, compiled.packed_metadata, None, None, None)
    return PreparedLaunch(launcher, programs, tensors[0].get_device(), head, described, tail)
