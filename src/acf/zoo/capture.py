"""Training a named network on real data for some steps, and capturing the step that follows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import DataError
from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.options import option, required
from acf.trace import Trace, capture
from acf.train import attach
from acf.zoo.data.training_data import TrainingData
from acf.zoo.networks import MODELS

_AUXILIARY_WEIGHT = 0.3  # of each auxiliary head's loss: Szegedy et al., 2015, section 5
_SMALLEST_IMAGE = 64
_VIT_PATCH = 16


def check_device(device: str) -> None:
    """Refuse a device that is neither the CPU nor a GPU that torch can use."""
    if device not in ("cpu", "cuda"):
        raise DataError(f"device {device!r} is not one of cpu, cuda; use one of these names")
    if device == "cuda" and not torch.cuda.is_available():
        raise DataError("device 'cuda': torch finds no GPU here; use cpu")


@dataclass(frozen=True)
class CaptureSpec:
    """What to train and what to capture.

    ``captured`` examples take part in the captured step, 0: as many as in a training ``batch``. With ``every``, a step
    is captured after every so many steps too, and before the first. With ``sparsity``, layers that ``block`` divides
    keep that share of blocks fewer from the start, and blocks move four times on the way.
    """

    model: str = field(metadata=required("A network's name, for example resnet50."))
    steps: int = option(20, "Training steps before the captured one.")
    batch: int = option(4, "Examples of a training step.")
    captured: int = option(0, "Examples of the captured step; 0: as many as --batch.")
    every: int = option(0, "Capture after every so many steps too, into OUTPUT-STEP.")
    image_size: int = option(64, "Height and width that images are resized to.")
    learning_rate: float = option(1e-4, "Of AdamW, constant.")
    seed: int = option(0, "Seed of weights and batches.")
    device: str = option("cpu", "cpu or cuda.")
    sparsity: float = option(0.0, "Share of blocks to train without; blocks move meanwhile.")
    block: int = option(16, "With --sparsity: side of a block.")

    def __post_init__(self) -> None:
        self._check_model()
        for name, smallest in (("steps", 0), ("batch", 2), ("captured", 0), ("every", 0)):
            if getattr(self, name) < smallest:
                raise DataError(f"{name} {getattr(self, name)} is below {smallest}; use {smallest} or more")
        if self.captured == 1:
            raise DataError("captured 1: normalisation needs a second example to train on; use 2 or more")
        if self.learning_rate <= 0:
            raise DataError(f"learning rate {self.learning_rate} is not above 0; use for example 1e-4")
        self._check_image_size()
        check_device(self.device)

    def _check_model(self) -> None:
        if self.model not in MODELS:
            close = get_close_matches(self.model, MODELS, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise DataError(f"model {self.model!r} is not known; {hint}use one of {', '.join(MODELS)}")

    def _check_image_size(self) -> None:
        if self.kind != "image":
            return
        if self.image_size < _SMALLEST_IMAGE:
            raise DataError(f"image size {self.image_size} is below {_SMALLEST_IMAGE}; use {_SMALLEST_IMAGE} or more")
        if self.model == "vit-b16" and self.image_size % _VIT_PATCH:
            raise DataError(
                f"image size {self.image_size} does not divide into patches of {_VIT_PATCH}; use a multiple of it"
            )

    @property
    def kind(self) -> str:
        """What the network reads: "image", "sentence" or "pair"."""
        return {"bert-base": "sentence", "ncf": "pair"}.get(self.model, "image")

    @property
    def captured_examples(self) -> int:
        """Examples in the captured step."""
        return self.captured or self.batch


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """The ``trace`` of the step after ``step`` steps of training, and the ``loss`` of that step."""

    step: int
    loss: float
    trace: Trace


def captured_steps(spec: CaptureSpec, data: TrainingData) -> Iterator[CapturedStep]:
    """Train with AdamW at a constant rate and yield every captured step; the last follows the last training step."""
    model = build_model(spec)
    if spec.sparsity:
        sparsify_(model, BlockSparsity(spec.sparsity, block=spec.block), lambda module, _: _divides(module, spec.block))
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate)
    if spec.sparsity and spec.steps:
        attach(model, optimizer, BlockDST(total_steps=spec.steps, every=max(1, spec.steps // 5)))
    batches = _batches(data, spec)
    held = data.batch(next(batches)[: spec.captured_examples], spec.image_size, spec.device)
    for step in range(spec.steps + 1):
        if step == spec.steps or (spec.every and step % spec.every == 0):
            yield capture_step(model, held, step, _label(spec, data, step))
        if step < spec.steps:
            inputs, labels = data.batch(next(batches)[: spec.batch], spec.image_size, spec.device)
            optimizer.zero_grad()
            training_loss(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _divides(layer: nn.Module, block: int) -> bool:
    """Whether ``block`` divides both channels of an ungrouped convolution, or both features of a linear layer."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.in_channels % block == 0 and layer.out_channels % block == 0
    return isinstance(layer, nn.Linear) and layer.in_features % block == 0 and layer.out_features % block == 0


def build_model(spec: CaptureSpec) -> nn.Module:
    """The network from the seed; convolutions start as He et al. (2015) propose, so that deep ones learn unaided."""
    torch.manual_seed(spec.seed)
    model = MODELS[spec.model]()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model.to(spec.device).train()


def training_loss(scores: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
    """Cross-entropy of the scores, those of auxiliary heads at 0.3; binary where labels are floats."""
    if isinstance(scores, tuple):
        main, *auxiliary = (training_loss(head, labels) for head in scores)
        return main + _AUXILIARY_WEIGHT * torch.stack(auxiliary).sum()
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(scores, labels)
    return F.cross_entropy(scores, labels)


def capture_step(model: nn.Module, batch: tuple[Tensor, Tensor], step: int, label: str) -> CapturedStep:
    """The operands of one training step on ``batch``; the weights stay as they are."""
    model.zero_grad()
    with capture(model, label) as trace:
        loss = training_loss(model(batch[0]), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]
    return CapturedStep(step, loss.item(), trace)


def _label(spec: CaptureSpec, data: TrainingData, step: int) -> str:
    size = f" of {spec.image_size} x {spec.image_size}" if spec.kind == "image" else ""
    blocks = f", {spec.sparsity:.0%} sparse in blocks of {spec.block}" if spec.sparsity else ""
    examples = f"{spec.captured_examples} examples{size}"
    return f"{spec.model}{blocks}: {examples} after {step} steps of {spec.batch}; {data.name}"


def _batches(data: TrainingData, spec: CaptureSpec) -> Iterator[Tensor]:
    """Indices of one batch after another, reshuffled every epoch; all as long as the longer of both kinds of step."""
    size = max(spec.batch, spec.captured_examples)
    if size > len(data.inputs):
        raise DataError(f"batch {size} is more than the {len(data.inputs)} examples of {data.name}; use fewer")
    generator = torch.Generator().manual_seed(spec.seed)
    while True:
        order = torch.randperm(len(data.inputs), generator=generator)
        yield from (part for part in torch.split(order, size) if len(part) == size)
