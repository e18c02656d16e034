"""Train a network of the zoo on real data for some steps, and capture the step that follows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor, nn

from acf.errors import DataError
from acf.gradients import GradientSparsity
from acf.masks import POLICIES, build_policy, find_policy
from acf.nn import BlockSparsity, sparsify_
from acf.options import option, required
from acf.plugins import is_reference
from acf.trace import Trace, capture
from acf.train import attach
from acf.zoo.data import LabelledData, data_sets_of
from acf.zoo.networks import NETWORKS
from acf.zoo.pruning import PRUNINGS
from acf.zoo.training import (
    Batch,
    check_device,
    check_known,
    check_least,
    check_rate,
    shuffled_batches,
    train_step,
    training_loss,
)

CAPTURED = tuple(name for name, network in NETWORKS.items() if data_sets_of(network.reads))
"""Networks that a data set fits; those for images of 32 x 32 are trained by `acf.bench.epochs`."""

_SMALLEST_IMAGE = 64
_VIT_PATCH = 16


@dataclass(frozen=True)
class CaptureSpec:
    """What to train and what to capture.

    ``captured``: examples of the captured step, 0: as many as of a training ``batch``. ``every``: also capture before
    the first step and after every so many, 0: only after the last. ``sparsity``: fraction of blocks removed before
    training, in layers whose shape ``block`` divides; the topology is then updated three times by ``policy``.
    ``gradient_target``: share of zeros that dynamic threshold scaling (DTS) gives the input gradient of every
    convolution, as SparTANN does; 0: none. ``pruning``: a method of `acf.zoo.pruning` that prunes single weights up to
    ``sparsity`` instead of blocks, and moves them as often.
    """

    model: str = field(metadata=required("A network's name, for example resnet50, or module:function."))
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
    policy: str = option("block-dst", "With --sparsity: how blocks move; a policy's name, a plug-in, or module:Class.")
    pruning: str = option(
        "", "Prune single weights: sparse-momentum, dynamic-reparameterization, rigl; default: blocks."
    )
    gradient_target: float = option(0.0, "Share of zeros that DTS gives input gradients of convolutions; 0: none.")

    def __post_init__(self) -> None:
        if self.is_own:
            self._refuse_training()
            return
        find_policy(self.policy, POLICIES)
        check_known("model", self.model, CAPTURED)
        check_least(self, steps=0, batch=2, captured=0, every=0)
        if self.captured == 1:
            raise DataError("captured 1: normalisation needs a second example to train on; use 2 or more")
        check_rate(self.learning_rate, "1e-4")
        if self.pruning:
            check_known("pruning", self.pruning, PRUNINGS)
        self._check_image_size()
        check_device(self.device)

    @property
    def is_own(self) -> bool:
        """Whether ``model`` is ``module:function``, which builds a model and its batch (`acf.zoo.own_model`)."""
        return is_reference(self.model)

    def _refuse_training(self) -> None:
        """A model of the user's own is captured as it comes: refuse options that would train or change it."""
        for item in fields(self):
            if item.name != "model" and getattr(self, item.name) != item.default:
                raise DataError(
                    f"{item.name} {getattr(self, item.name)!r}: {self.model} is captured as its function returns it; "
                    "leave the option out and train, or sparsify, in that function"
                )

    def _check_image_size(self) -> None:
        if self.kind != "image":
            return
        if self.image_size < _SMALLEST_IMAGE:
            raise DataError(f"image size {self.image_size} is below {_SMALLEST_IMAGE}; use {_SMALLEST_IMAGE} or more")
        if self.model.startswith("vit-") and self.image_size % _VIT_PATCH:
            raise DataError(
                f"image size {self.image_size} does not divide into patches of {_VIT_PATCH}; use a multiple of it"
            )

    @property
    def kind(self) -> str:
        """What the network reads: "image", "sentence" or "pair"."""
        return NETWORKS[self.model].reads

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


def captured_steps(
    spec: CaptureSpec,
    data: LabelledData,
    on_progress: Callable[[str, float], None] = lambda what, share: None,
) -> Iterator[CapturedStep]:
    """Train with AdamW at a constant rate and yield every captured step; the last follows the last training step.

    ``on_progress`` is called before every step with what it is and the share of steps done.
    """
    model = build_model(spec)
    if spec.sparsity and not spec.pruning:
        blocks = BlockSparsity(spec.sparsity, block=spec.block, rescale=False)
        sparsify_(model, blocks, lambda module, _: _divides(module, spec.block))
    if spec.gradient_target:
        dts = GradientSparsity(spec.gradient_target, at="input")
        sparsify_(model, dts, lambda module, _: isinstance(module, nn.Conv2d))
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, fused=True)
    pruning = PRUNINGS[spec.pruning](model, spec.sparsity, spec.seed) if spec.pruning else None
    every = max(1, spec.steps // 5)
    if spec.sparsity and spec.steps and not pruning:
        policy = build_policy(find_policy(spec.policy, POLICIES), total_steps=spec.steps, every=every)
        attach(model, optimizer, policy)
    batches = _batches(data, spec)
    held = data.batch(next(batches)[: spec.captured_examples], spec.image_size, spec.device)
    for step in range(spec.steps + 1):
        on_progress(f"{spec.model}, step {step} of {spec.steps}", step / (spec.steps + 1))
        if step == spec.steps or (spec.every and step % spec.every == 0):
            yield capture_step(model, held, step, _label(spec, data, step))
        if step < spec.steps:
            train_step(model, optimizer, data.batch(next(batches)[: spec.batch], spec.image_size, spec.device))
            if pruning:
                pruning.apply()
                if (step + 1) % every == 0 and step + 1 < spec.steps:
                    pruning.update(optimizer)


def _divides(layer: nn.Module, block: int) -> bool:
    """Whether ``block`` divides both channels of an ungrouped convolution, or both features of a linear layer."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.in_channels % block == 0 and layer.out_channels % block == 0
    return isinstance(layer, nn.Linear) and layer.in_features % block == 0 and layer.out_features % block == 0


def build_model(spec: CaptureSpec) -> nn.Module:
    """The network from the seed; convolutions start as in He et al. (2015), so that deep networks learn at once."""
    torch.manual_seed(spec.seed)
    model = NETWORKS[spec.model].build()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model.to(spec.device).train()


def capture_step(model: nn.Module, batch: Batch, step: int, label: str) -> CapturedStep:
    """The operands of one training step on ``batch``; the weights stay as they are."""
    model.zero_grad()
    with capture(model, label) as trace:
        loss = training_loss(model(batch[0]), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]
    return CapturedStep(step, loss.item(), trace)


def _label(spec: CaptureSpec, data: LabelledData, step: int) -> str:
    size = f" of {spec.image_size} x {spec.image_size}" if spec.kind == "image" else ""
    pattern = f"by {spec.pruning}" if spec.pruning else f"in blocks of {spec.block}"
    blocks = f", {spec.sparsity:.0%} sparse {pattern}" if spec.sparsity else ""
    blocks += f", DTS at {spec.gradient_target:.0%}" if spec.gradient_target else ""
    examples = f"{spec.captured_examples} examples{size}"
    return f"{spec.model}{blocks}: {examples} after {step} steps of {spec.batch}; {data.name}"


def _batches(data: LabelledData, spec: CaptureSpec) -> Iterator[Tensor]:
    """Indices for one step after another, as many as the larger of a training and a captured step needs."""
    size = max(spec.batch, spec.captured_examples)
    if size > len(data.inputs):
        raise DataError(f"batch {size} is more than the {len(data.inputs)} examples of {data.name}; use fewer")
    return shuffled_batches(len(data.inputs), size, torch.Generator().manual_seed(spec.seed))
