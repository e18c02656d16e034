"""What a benchmark run needs to know of a task: its sizes, model, batches, loss and quality."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.compiler import config as compiler_config
from torch.nn.attention import SDPBackend, sdpa_kernel

from acf.errors import SparsityError
from acf.zoo.networks.gpt import GptSpec

ATTENTION = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
"""Attention kernels of torch by the name that `TaskSpec.attention` takes."""


DTYPES = ("float32", "bfloat16")
DEFAULT_DTYPE = {"cuda": "bfloat16", "cpu": "float32"}


@dataclass(frozen=True)
class TaskSpec:
    """The sizes of a task; ``width``, ``batch``, ``rate`` and ``weight_decay`` are those of variants that name none.

    ``rate`` is the peak learning rate. ``layers``, ``context``, ``vocabulary``, ``attention``, the other widths and
    ``experts`` are a GPT's, these as in `GptSpec`; ``attention`` is the kernel that a GPU tries first, for dense and
    sparse models alike; empty: torch's own order.
    ``start_scale`` is a residual network's: with it the last batch norm of every block starts; None: it has no choice.
    ``dtype`` is that of products; empty: bfloat16 on a GPU, float32 on a CPU. ``compiled``: steps on a CPU are compiled
    too, as they always are on a GPU.
    """

    name: str
    quality: str
    width: int
    batch: int
    rate: float
    weight_decay: float
    layers: int = 0
    context: int = 0
    vocabulary: int = 0
    attention_width: int | None = None
    embedding_width: int | None = None
    head_width: int = 128
    experts: int | None = None
    examples: int = 0
    attention: str = ""
    start_scale: float | None = None
    dtype: str = ""
    compiled: bool = False

    def __post_init__(self) -> None:
        if self.context:
            _ = self.gpt  # refuses sizes that no GPT has
        if self.attention and self.attention not in ATTENTION:
            raise SparsityError(f"attention {self.attention!r} is not one of {', '.join(ATTENTION)}; use one of these")
        if self.dtype and self.dtype not in DTYPES:
            raise SparsityError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPES)}; use one of these")

    @property
    def gpt(self) -> GptSpec:
        """The shape of a GPT of these sizes."""
        return GptSpec(**{each.name: getattr(self, each.name) for each in fields(GptSpec)})

    def computes_in_bfloat16(self, device: torch.device) -> bool:
        """Whether products on ``device`` are in bfloat16, over float32 weights."""
        return (self.dtype or DEFAULT_DTYPE[device.type]) == "bfloat16"

    def is_compiled(self, device: torch.device) -> bool:
        """Whether steps on ``device`` are compiled."""
        return self.compiled or device.type == "cuda"


TASKS: dict[str, TaskSpec] = {
    "resnet18": TaskSpec("resnet18", "accuracy %", 128, 512, 0.4, 5e-4),
    "wrn28": TaskSpec("wrn28", "accuracy %", 10, 512, 0.4, 5e-4),
    "small": TaskSpec("small", "accuracy %", 32, 128, 0.2, 5e-4),
    "gpt": TaskSpec(
        "gpt", "validation loss", 1024, 32, 6e-4, 0.1, layers=12, context=1024, vocabulary=16_384, attention="cudnn"
    ),
    "gpt-small": TaskSpec(
        "gpt-small", "validation loss", 128, 4, 1e-3, 0.1, layers=2, context=64, vocabulary=512, attention="cudnn"
    ),
}
"""The tasks that `acf bench training` knows; "small" and "gpt-small" are of a CPU's size."""


class Task(Protocol):
    """A model and its data, on one device; ``sizes`` are those of ``spec`` with what a variant overrides."""

    spec: TaskSpec
    device: torch.device
    higher_is_better: bool

    @property
    def data(self) -> str:
        """The data and its size, by which records of other data are told apart."""

    def model(self, sizes: TaskSpec) -> nn.Module:
        """A fresh model of these sizes, on the device."""

    def batch(self, step: int, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The batch of a step, counted from 0: ``size`` examples."""

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The training loss of a batch."""

    def measure(self, model: nn.Module) -> float:
        """The quality of ``model`` on data that no training batch contains; the same data for every variant."""

    def optimizer(self, model: nn.Module, sizes: TaskSpec) -> torch.optim.Optimizer:
        """The optimizer of the task; its learning rate is a tensor, as CUDA graphs need it."""

    def steps(self, epochs: float, batch: int) -> int:
        """Steps of so many passes over the training data."""

    def for_tuning(self) -> "Task":
        """The same task with a part of the training data held out, on which alone quality is measured.

        Settings are chosen on it, so that the data behind published quality has no part in the choice.
        """


@contextmanager
def computing(spec: TaskSpec, device: torch.device) -> Iterator[None]:
    """How products and attention are computed, in training and measuring alike.

    In bfloat16 there is no cache of casts, as CUDA graphs need it. On a GPU attention takes the first kernel that can
    run, beginning with ``spec.attention``; on a CPU torch chooses.
    """
    attention = attention_first(spec.attention) if device.type == "cuda" and spec.attention else nullcontext()
    enabled = spec.computes_in_bfloat16(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False), attention:
        yield


@contextmanager
def attention_first(name: str) -> Iterator[None]:
    """Let ``scaled_dot_product_attention`` try the kernel ``name`` first.

    `torch.compile` and CUDA graphs keep the kernel that was chosen when they traced. The choice is no part of the key
    under which torch caches compiled code on disk, so the tag of that key names it.
    """
    tag = f"{compiler_config.cache_key_tag} attention={name}"
    tagged = compiler_config.patch(cache_key_tag=tag)  # type: ignore[attr-defined]  # added when torch is imported
    with sdpa_kernel(attention_order(name), set_priority=True), tagged:
        yield


def attention_order(first: str) -> list[SDPBackend]:
    """Every attention kernel, ``first`` before the others; the last is the plain formula, which always runs.

    >>> [kernel.name.split("_")[0] for kernel in attention_order("flash")]
    ['FLASH', 'CUDNN', 'EFFICIENT', 'MATH']
    """
    return [ATTENTION[first], *(kernel for name, kernel in ATTENTION.items() if name != first), SDPBackend.MATH]
