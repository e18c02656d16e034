"""The kernels of `acf.ops` on an NVIDIA GPU, in the number format of the operands. Times are measured."""

from collections.abc import Sequence
from time import perf_counter
from typing import ClassVar

import torch
from torch import Tensor

from acf.runtime.backends.backend import Architecture, Backend, Launched
from acf.runtime.backends.kernels import build_topology, multiply
from acf.runtime.errors import NoDeviceError
from acf.runtime.link import HostLink
from acf.runtime.memory import Bytes, Region, Storage
from acf.runtime.numbers import Values
from acf.runtime.product import Argument
from acf.runtime.program import Program
from acf.runtime.timeline import Cost
from acf.sparse import BlockTopology

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class CudaStorage:
    """Bytes in the GPU's memory."""

    def __init__(self, nbytes: int, device: torch.device) -> None:
        self.content = torch.zeros(nbytes, dtype=torch.uint8, device=device)

    def read(self, offset: int, nbytes: int) -> Bytes:
        """A copy of some bytes, in the host's memory."""
        return self.content[offset : offset + nbytes].cpu().numpy()

    def write(self, offset: int, content: Bytes) -> None:
        """Replace some bytes."""
        self.content[offset : offset + content.size] = torch.from_numpy(content.copy()).to(self.content.device)


class Cuda(Backend):
    """The current GPU of torch; operands stay in its memory."""

    name: ClassVar[str] = "cuda"

    def __init__(self, architecture: Architecture | None, link: HostLink, walked: bool = False) -> None:
        super().__init__(architecture, link, walked)
        if not torch.cuda.is_available():
            raise NoDeviceError(
                "torch finds no CUDA device on this machine; use Device('cpu'), or run where torch.cuda.is_available()"
            )
        self.device = torch.device("cuda", torch.cuda.current_device())

    def allocate(self, nbytes: int) -> Storage:
        """Memory of the GPU."""
        return CudaStorage(nbytes, self.device)

    def run(self, program: Program, regions: Sequence[Region]) -> Cost:
        """One call of a kernel on operands that are in the GPU's memory."""
        if program.product is None:
            return Cost()
        a, b, result = (_tensor(*each) for each in zip(program.arguments, regions, strict=True))
        cost = self._multiply(program, (a, b), result)
        regions[-1].buffer.version += 1
        return cost

    def compute(self, launched: Launched) -> tuple[Values, Cost]:
        """The same for operands of the host, which a replay has."""
        *inputs, output = launched.program.arguments
        a, b = (
            torch.from_numpy(values).to(self.device, DTYPES[argument.dtype])
            for argument, values in zip(inputs, launched.operands, strict=True)
        )
        result = torch.empty(output.shape, dtype=DTYPES[output.dtype], device=self.device)
        cost = self._multiply(launched.program, (a, b), result)
        return result.float().cpu().numpy(), cost

    def _multiply(self, program: Program, operands: tuple[Tensor, Tensor], result: Tensor) -> Cost:
        """Multiply into ``result``, and measure it."""
        product = program.product
        assert product is not None
        topology = program.cache.get(self.device)
        if not isinstance(topology, BlockTopology):
            topology = program.cache[self.device] = build_topology(product.weight, self.device)
        torch.cuda.synchronize(self.device)
        began = perf_counter()
        result.copy_(multiply(product, operands, topology))
        torch.cuda.synchronize(self.device)
        return Cost(perf_counter() - began)


def _tensor(argument: Argument, region: Region) -> Tensor:
    """An argument as a tensor that shares the buffer's memory."""
    storage = region.buffer.storage
    assert isinstance(storage, CudaStorage)
    content = storage.content[region.offset : region.offset + region.nbytes]
    return content.view(DTYPES[argument.dtype]).view(argument.shape)
