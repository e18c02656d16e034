"""A whole training step of decoder-style transformers, dense and block-sparse: time and peak memory."""

from dataclasses import dataclass

import torch
import torch._functorch.config
from torch import Tensor, nn
from triton.testing import do_bench

from acf.nn import BlockSparsity, sparsify_


@dataclass(frozen=True)
class StepModel:
    """Shape of a transformer and of its batch; the hidden layer of the MLP is four times ``width``."""

    name: str
    layers: int
    width: int
    heads: int
    batch: int
    sequence: int


STEP_MODELS = (
    StepModel("d=4096, 4 layers, 8192 tokens", 4, 4096, 32, 4, 2048),
    StepModel("d=2048, 6 layers, 8192 tokens", 6, 2048, 16, 8, 1024),
    StepModel("d=512 (Transformer-Base), 6 layers, 16384 tokens", 6, 512, 8, 64, 256),
)


class TransformerBlock(nn.Module):
    """Pre-norm attention and MLP; ``x [batch, sequence, width]``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_in = nn.Linear(width, 4 * width, bias=False)
        self.mlp_out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        batch, sequence, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, sequence, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, sequence, width))
        hidden: Tensor = self.mlp_out(nn.functional.gelu(self.mlp_in(self.mlp_norm(x))))
        return x + hidden


@dataclass(frozen=True)
class StepTime:
    """Median time of a step and the most memory it held, with what made it."""

    milliseconds: float
    peak_gib: float
    parameters: int


def time_step(
    model: StepModel, block: int | None, compile_mode: str, memory_budget: float = 1.0, repeat_ms: int = 300
) -> StepTime:
    """One AdamW step in bf16, compiled; ``block`` None is dense.

    ``memory_budget`` below 1 lets the compiler recompute activations, in dense and sparse models alike.
    """
    torch.compiler.reset()
    torch._functorch.config.activation_memory_budget = memory_budget
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    with torch.device("cuda"):
        net = nn.Sequential(*[TransformerBlock(model.width, model.heads) for _ in range(model.layers)])
    net.to(torch.bfloat16)
    if block is not None:
        sparsify_(net, BlockSparsity(sparsity=0.9, block=block))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x = torch.randn(model.batch, model.sequence, model.width, device="cuda", dtype=torch.bfloat16)
    run = torch.compile(net, mode=compile_mode, fullgraph=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        run(x).float().square().mean().backward()
        optimizer.step()

    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    milliseconds = do_bench(step, warmup=repeat_ms // 3, rep=repeat_ms, return_mode="median")
    parameters = sum(parameter.numel() for parameter in net.parameters())
    # do_bench holds 256 MB to clear the cache between runs, in every variant alike.
    return StepTime(milliseconds, torch.cuda.max_memory_allocated() / 2**30, parameters)
