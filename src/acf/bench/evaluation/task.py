"""What the evaluation asks of a benchmark beyond a `Task`: its unit, its metrics, and what it finally puts out."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from acf.bench.evaluation.ranks import current_ranks
from acf.bench.training.task import Task


class EvaluationTask(Task, Protocol):
    """A `Task` whose batches follow from seed and step alone, so that an interrupted run goes on exactly.

    ``unit`` is what throughput counts: images or target tokens.
    """

    unit: str

    def examples_per_step(self, size: int) -> float:
        """Units of a batch of ``size``; of tokens the mean, without padding."""

    def metrics(self, model: nn.Module) -> dict[str, float]:
        """Every measure of quality, the headline one (`Task.measure`) first."""

    def outputs(self, model: nn.Module) -> list[str]:
        """What the trained model says about the test part: translations, or nothing for images."""

    @property
    def references(self) -> Sequence[str]:
        """What `outputs` is compared with."""

    def captured_batch(self, examples: int) -> tuple[Tensor, ...]:
        """A small batch, always the same, of which a step is traced."""


def step_generator(generator: torch.Generator, step: int) -> torch.Generator:
    """A generator that follows from the seed of ``generator``, ``step`` and this process's rank alone."""
    seed = (generator.initial_seed() * 1_000_003 + step + 1 + 500_009 * current_ranks().rank) % 2**63
    return torch.Generator(generator.device).manual_seed(seed)


class EpochOrder:
    """The order of examples in every epoch, from the seed and the epoch alone; whole batches only."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self._known: tuple[tuple[int, int], Tensor] | None = None

    def indices(self, step: int, size: int, seed: int) -> Tensor:
        """Examples ``[size]`` of the batch at ``step``, on the CPU; under `torchrun` this process's share of them."""
        batches = self.examples // size
        epoch, place = divmod(step, batches)
        if self._known is None or self._known[0] != (seed, epoch):
            generator = torch.Generator().manual_seed((seed * 7_919 + epoch) % 2**63)
            self._known = (seed, epoch), torch.randperm(self.examples, generator=generator)
        return self._known[1][place * size : (place + 1) * size][current_ranks().share(size)]
