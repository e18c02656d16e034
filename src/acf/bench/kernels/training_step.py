"""A whole training step of decoder-style transformers, dense and block-sparse: the models, and one compiled step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch._functorch.config
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

from acf.nn import BlockSparsity, FusedSequential, LayerTiming, sparsify_, time_layers

STEP_SPARSITY = 0.9


@dataclass(frozen=True)
class StepModel:
    """Shape of a transformer and of its batch; the hidden layer of the MLP is four times ``width``."""

    name: str
    layers: int
    width: int
    heads: int
    batch: int
    sequence: int

    @property
    def tokens(self) -> int:
        """Tokens of a batch."""
        return self.batch * self.sequence

    @property
    def weight_shapes(self) -> tuple[tuple[int, int], ...]:
        """Outputs and inputs of the linear layers of a block."""
        return tuple((rows * self.width, cols * self.width) for rows, cols in ((3, 1), (1, 1), (4, 1), (1, 4)))


STEP_MODELS = (
    StepModel("d=4096, 4 layers, 8192 tokens", 4, 4096, 32, 4, 2048),
    StepModel("d=2048, 6 layers, 8192 tokens", 6, 2048, 16, 8, 1024),
    StepModel("d=512 (Transformer-Base), 6 layers, 16384 tokens", 6, 512, 8, 64, 256),
)

LINEAR_LAYERS = ("query_key_value", "attention_out", "mlp.0", "mlp.2")

ATTENTION = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
"""The attention kernels of torch that a step may be timed with, dense and sparse alike."""


@dataclass(frozen=True)
class StepVariant:
    """One way to run the step of a model; ``block`` None is dense.

    ``memory_budget`` below 1 lets the compiler recompute activations. ``sparse_layers`` names the linear layers of a
    block that are made sparse, ``fused`` says whether they may take the GELU in.
    """

    model: StepModel
    block: int | None = None
    mode: str = "default"
    memory_budget: float = 1.0
    attention: str = "cudnn"
    sparse_layers: tuple[str, ...] = LINEAR_LAYERS
    fused: bool = True


class TransformerBlock(nn.Module):
    """Pre-norm attention and MLP; ``x [batch, sequence, width]``.

    With ``fused`` sparse layers take the GELU in; of dense layers the compiler makes the same either way.
    """

    def __init__(self, width: int, heads: int, fused: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp = (FusedSequential if fused else nn.Sequential)(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        batch, sequence, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, sequence, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, sequence, width))
        hidden: Tensor = self.mlp(self.mlp_norm(x))
        return x + hidden


class TransformerLoss(nn.Module):
    """Blocks and a mean square, a loss that reads its input once; ``x [batch, sequence, width]`` to a scalar."""

    def __init__(self, model: StepModel, fused: bool) -> None:
        super().__init__()
        blocks = [TransformerBlock(model.width, model.heads, fused) for _ in range(model.layers)]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        y: Tensor = self.blocks(x)
        return y.float().square().mean()


class CompiledStep:
    """Forward, loss, backward and AdamW of one variant in bf16, compiled and warm."""

    def __init__(self, variant: StepVariant) -> None:
        self.variant, model = variant, variant.model
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.net = TransformerLoss(model, variant.fused).to(torch.bfloat16)
        self.x = torch.randn(model.batch, model.sequence, model.width, device="cuda", dtype=torch.bfloat16)
        if variant.block is not None and variant.sparse_layers:
            spec = BlockSparsity(sparsity=STEP_SPARSITY, block=variant.block)
            sparsify_(self.net, spec, lambda _, name: name.split(".", 2)[2] in variant.sparse_layers)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.forward = torch.compile(self.net, mode=variant.mode, fullgraph=True)
        with self._settings():
            for _ in range(4):
                self()
            torch.cuda.synchronize()

    @contextmanager
    def _settings(self) -> Iterator[None]:
        budget = torch._functorch.config.patch(activation_memory_budget=self.variant.memory_budget)
        with budget, sdpa_kernel(ATTENTION[self.variant.attention]):
            yield

    def __call__(self) -> None:
        """One training step."""
        self.optimizer.zero_grad(set_to_none=True)
        self.forward(self.x).backward()
        self.optimizer.step()

    @property
    def parameters(self) -> int:
        """Number of stored weights."""
        return sum(parameter.numel() for parameter in self.net.parameters())

    def milliseconds(self, repeat_ms: int = 200) -> float:
        """Median time of a step, caches cleared before each."""
        with self._settings():
            time: float = do_bench(self, warmup=repeat_ms // 4, rep=repeat_ms, return_mode="median")
        return time

    def peak_gib(self) -> float | None:
        """The most memory a step holds; None with CUDA graphs, whose memory the allocator does not count."""
        if self.variant.mode == "reduce-overhead":
            return None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with self._settings():
            self()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() / 2**30


def time_step_layers(model: StepModel, block: int, cuda_graphs: bool) -> list[LayerTiming]:
    """The linear layers of one block of ``model``, each alone, dense and sparse; the blocks are all alike."""
    with torch.device("cuda"):
        layer = TransformerBlock(model.width, model.heads).to(torch.bfloat16)
        x = torch.randn(model.batch, model.sequence, model.width, dtype=torch.bfloat16)
    return time_layers(layer, x, BlockSparsity(sparsity=STEP_SPARSITY, block=block), cuda_graphs=cuda_graphs)
