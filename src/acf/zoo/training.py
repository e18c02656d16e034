"""What training runs share: checks of their specs, batches, the loss, one optimizer step, correct predictions."""

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import DataError

Batch = tuple[Tensor, Tensor]
"""Inputs ``[batch, ...]`` and labels ``[batch]``, or one for every position: ``[batch, positions]``."""

_AUXILIARY_WEIGHT = 0.3  # of each auxiliary classifier's loss: Szegedy et al., 2015, section 5


def check_device(device: str) -> None:
    """Refuse a device that is neither the CPU nor a GPU that torch can use."""
    if device not in ("cpu", "cuda"):
        raise DataError(f"device {device!r} is not one of cpu, cuda; use one of these names")
    if device == "cuda" and not torch.cuda.is_available():
        raise DataError("device 'cuda': torch finds no GPU here; use cpu")


def check_known(what: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among ``known``, suggesting the nearest one."""
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise DataError(f"{what} {name!r} is not known; {hint}use one of {', '.join(known)}")


def check_least(spec: object, **least: int) -> None:
    """Refuse a field of ``spec`` that is below its least value."""
    for name, smallest in least.items():
        if getattr(spec, name) < smallest:
            raise DataError(f"{name} {getattr(spec, name)} is below {smallest}; use {smallest} or more")


def check_rate(learning_rate: float, example: str) -> None:
    """Refuse a learning rate that is not above 0, or not finite."""
    if not 0 < learning_rate < inf:
        raise DataError(f"learning rate {learning_rate} is not above 0 and finite; use for example {example}")


def shuffled_batches(examples: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices ``[batch]`` without end: epoch after epoch, each a new permutation; the rest of an epoch is left out.

    A permutation is drawn only when its first batch is asked for, on the generator's device.
    """
    while True:
        order = torch.randperm(examples, device=generator.device, generator=generator)
        yield from (part for part in torch.split(order, batch) if len(part) == batch)


def training_loss(scores: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
    """Cross-entropy, binary where labels are floats; auxiliary classifiers' scores count 0.3 each."""
    if isinstance(scores, tuple):
        main, *auxiliary = (training_loss(each, labels) for each in scores)
        return main + _AUXILIARY_WEIGHT * torch.stack(auxiliary).sum()
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(scores, labels)
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten())


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> Tensor:
    """One optimizer step by `training_loss`; returns the loss before it."""
    optimizer.zero_grad()
    loss = training_loss(model(batch[0]), batch[1])
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def count_correct(model: nn.Module, batches: Iterable[Batch]) -> int:
    """How many examples get their highest score for their label; the training mode is restored."""
    was_training = model.training
    model.eval()
    correct: Tensor | int = 0
    for inputs, labels in batches:
        correct = correct + (model(inputs).argmax(dim=1) == labels).sum()
    model.train(was_training)
    return int(correct)
