"""Both layers of an MLP in one native pass, beside one layer after the other and beside the dense MLP, on a CPU.

    OMP_NUM_THREADS=2 python docs/figures/both_layers.py

Forward and backward, eager, of two linear layers with biases and GELU between them, float32 and bfloat16 over float32
parameters; the three ways take turns, medians count. Writes docs/results/both-layers.json.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

import acf
from acf.ops import MlpLayer, block_mlp
from acf.ops.cpu import both_layers
from acf.ops.cpu.call import instruction_set
from acf.records.provenance import commit_of, processor_name
from acf.sparse import BlockLayout, BlockTopology

RECORD = Path(__file__).parents[1] / "results" / "both-layers.json"
ROUNDS, CALLS, WARM_UP_ROUNDS = 9, 10, 2


@dataclass(frozen=True)
class Mlp:
    """``width`` to ``hidden`` to ``width`` channels; ``across``: inputs are the transpose of what lies in memory."""

    width: int
    hidden: int
    tokens: int
    block: int = 32
    density: float = 0.1
    across: bool = False


MLPS = (
    Mlp(256, 256, 4096, across=True),
    Mlp(256, 1024, 512),
    Mlp(384, 1536, 2048),
    Mlp(384, 1536, 2048, density=0.2),
    Mlp(512, 2048, 2048),
    Mlp(512, 2048, 2048, density=0.25),
    Mlp(512, 2048, 2048, density=0.5),
    Mlp(512, 2048, 2048, block=16),
    Mlp(512, 2048, 2048, block=64),
    Mlp(1024, 4096, 2048),
)


def layer(outputs: int, inputs: int, mlp: Mlp, generator: torch.Generator) -> MlpLayer:
    """A layer with random blocks."""
    layout = BlockLayout(outputs, inputs, mlp.block, mlp.block)
    mask = torch.rand(layout.grid_rows, layout.grid_cols, generator=generator) < mlp.density
    topology = BlockTopology.build(layout, *torch.nonzero(mask, as_tuple=True))
    weight = 0.02 * torch.randn(topology.block_rows.numel(), mlp.block, mlp.block, generator=generator)
    return MlpLayer(weight.requires_grad_(), topology, torch.zeros(outputs, requires_grad=True))


def tokens_of(mlp: Mlp, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """``[tokens, width]``, or ``[8, 512, width]`` as the transpose of a contiguous tensor."""
    if mlp.across:
        return torch.randn(8, mlp.width, mlp.tokens // 8, generator=generator).to(dtype).transpose(1, 2)
    return torch.randn(mlp.tokens, mlp.width, generator=generator).to(dtype)


def passes(mlp: Mlp, dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """Forward and backward, by way."""
    generator = torch.Generator().manual_seed(0)
    first, second = layer(mlp.hidden, mlp.width, mlp, generator), layer(mlp.width, mlp.hidden, mlp, generator)
    x, output_grad = (tokens_of(mlp, dtype, generator) for _ in range(2))
    x.requires_grad_()
    shapes = (mlp.hidden, mlp.width), (mlp.hidden,), (mlp.width, mlp.hidden), (mlp.width,)
    dense = [(0.02 * torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes]

    sparse = [first.weight, first.bias, second.weight, second.bias]

    def whole() -> None:
        torch.autograd.grad(block_mlp(x, first, second), [x, *sparse], output_grad)

    def one_by_one() -> None:
        with patch.object(both_layers, "runs_whole", lambda *operands: False):
            whole()

    def dense_mlp() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            y = F.linear(F.gelu(F.linear(x, *dense[:2])), *dense[2:])
        torch.autograd.grad(y, [x, *dense], output_grad)

    return {"whole": whole, "one_by_one": one_by_one, "dense": dense_mlp}


def milliseconds(mlp: Mlp, dtype: torch.dtype) -> dict[str, float]:
    """Medians of rounds in which the ways take turns."""
    ways = passes(mlp, dtype)
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(-WARM_UP_ROUNDS, ROUNDS):
        for way, run in ways.items():
            begun = time.perf_counter()
            for _ in range(CALLS):
                run()
            if turn >= 0:
                taken[way].append(1e3 * (time.perf_counter() - begun) / CALLS)
    return {way: median(seconds) for way, seconds in taken.items()}


def rows() -> list[dict[str, Any]]:
    """Every MLP in both dtypes."""
    found = []
    for mlp in MLPS:
        for dtype in (torch.float32, torch.bfloat16):
            row = asdict(mlp) | {"dtype": str(dtype).removeprefix("torch."), "ms": milliseconds(mlp, dtype)}
            print(row, flush=True)
            found.append(row)
    return found


def main() -> None:
    """Measure and write."""
    made = {
        "command": f"OMP_NUM_THREADS={torch.get_num_threads()} python docs/figures/both_layers.py",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit_of(Path(acf.__file__).parent),
        "machine": f"{processor_name()}, torch {torch.__version__}",
        "instructions": instruction_set(),
    }
    RECORD.write_text(json.dumps(made | {"mlps": rows()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
