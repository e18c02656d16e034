"""A GPT on a corpus of text, as a task of `acf bench training`."""

from dataclasses import replace
from math import ceil
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.bench.training.task import TaskSpec, computing
from acf.errors import DataError
from acf.zoo.data.text import TokenBatches, TokenSet, load_tokens
from acf.zoo.networks.gpt import Gpt

VALIDATION_BATCHES = 24
"""Batches of the task's size on which quality is measured, or fewer where there are fewer tokens."""

MOST_HELD_OUT = 0.2
"""Of a small corpus at most this part of the training tokens is held out while settings are chosen."""


def load_text_task(spec: TaskSpec, data: Path, cache: Path, device: torch.device) -> "TextTask":
    """The task of ``spec`` on the documents of ``data``; their tokens are kept in ``cache``."""
    return TextTask(spec, load_tokens(data, spec.vocabulary, cache), device)


class TextTask:
    """A GPT on the tokens of one corpus."""

    higher_is_better = False

    def __init__(self, spec: TaskSpec, tokens: TokenSet, device: torch.device) -> None:
        self.spec, self.device, self.tokens = spec, device, tokens
        self.train = TokenBatches(tokens.train, spec.context, device)
        self.validation = TokenBatches(tokens.validation, spec.context, device)
        if (tokens.validation.size - 1) // spec.context < spec.batch:
            raise DataError(
                f"{tokens.validation.size} validation tokens are fewer than one batch of {spec.batch} x "
                f"{spec.context}; use a larger corpus or a smaller --batch"
            )

    @property
    def data(self) -> str:
        """Tokens of both parts."""
        return f"{self.tokens.train.size} training, {self.tokens.validation.size} validation tokens"

    def model(self, sizes: TaskSpec) -> nn.Module:
        """A fresh GPT."""
        return Gpt(sizes.gpt).to(self.device)

    def batch(self, step: int, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Inputs and targets of random windows."""
        return self.train.draw(size, generator)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Mean cross-entropy of the next token, in nats."""
        tokens, targets = batch
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def measure(self, model: nn.Module) -> float:
        """Mean cross-entropy on held-out documents, in nats per token."""
        losses = []
        for batch in self.validation.in_order(self.spec.batch, VALIDATION_BATCHES):
            with computing(self.spec, self.device):
                losses.append(self.loss(model, *batch).float())
        return float(torch.stack(losses).mean())

    def optimizer(self, model: nn.Module, sizes: TaskSpec) -> torch.optim.Optimizer:
        """AdamW; norms without decay."""
        decayed = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
        others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        groups = [
            {"params": decayed, "weight_decay": sizes.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups,
            lr=torch.tensor(sizes.rate, device=self.device),
            betas=(0.9, 0.95),
            fused=True,
            capturable=self.device.type == "cuda",
        )

    def steps(self, epochs: float, batch: int) -> int:
        """Steps after which as many tokens were drawn as the corpus has, ``epochs`` times."""
        return max(1, ceil(epochs * self.train.tokens.numel() / (batch * self.spec.context)))

    def for_tuning(self) -> "TextTask":
        """The last training tokens are held out, as many as the measurement reads, and take the place of validation."""
        train = self.tokens.train
        wanted = VALIDATION_BATCHES * self.spec.batch * self.spec.context + 1
        kept = train.size - min(wanted, int(MOST_HELD_OUT * train.size))
        return TextTask(self.spec, replace(self.tokens, train=train[:kept], validation=train[kept:]), self.device)
