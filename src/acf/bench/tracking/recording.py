"""Train with sparse gradients and record, step by step, which fraction of them was zero."""

from dataclasses import dataclass, field
from statistics import mean

import torch

import acf
from acf.bench.accuracy.training import build_network, measure_accuracy, rise_and_fall
from acf.errors import SparsityError
from acf.gradients import tracking
from acf.options import option
from acf.zoo.data.images import DeviceImages, ImageSet
from acf.zoo.training import train_step


@dataclass(frozen=True)
class TrackingSpec:
    """The run: SGD with Nesterov momentum 0.9 and a one-cycle learning rate.

    ``warm_up_steps`` are left out of the figures: thresholds start at 0 and change by at most 20 % a step.
    """

    target: float = option(0.5, "Share of gradient elements to zero.")
    steps: int = option(600, "Training steps of each run.", min=1)
    batch: int = 64
    learning_rate: float = 0.1
    warm_up_steps: int = 60
    seed: int = option(0, "Seed of weights and batches.", min=0)
    width: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up_steps < self.steps:
            raise SparsityError(
                f"steps {self.steps} are not above the {self.warm_up_steps} of the warm-up; train longer"
            )


@dataclass(frozen=True)
class Tracked:
    """The run of one rule: fraction of zeros after every step, by layer, and the final accuracy in per cent."""

    method: str
    target: float
    warm_up_steps: int
    accuracy: float
    layers: dict[str, list[float]] = field(default_factory=dict)

    def means(self) -> list[float]:
        """The mean over the layers, by step."""
        return [mean(step) for step in zip(*self.layers.values(), strict=True)]

    def settled(self, layer: str) -> list[float]:
        """One layer's fractions of zeros after the warm-up."""
        return self.layers[layer][self.warm_up_steps :]

    @property
    def mean_miss(self) -> float:
        """Mean distance from the target after the warm-up, over layers and steps."""
        return mean(abs(share - self.target) for layer in self.layers for share in self.settled(layer))

    @property
    def worst_layer_miss(self) -> float:
        """The largest distance of a layer's mean fraction from the target."""
        return max(abs(mean(self.settled(layer)) - self.target) for layer in self.layers)

    @property
    def drift(self) -> float:
        """Signed distance of the mean over the last tenth of the run from the target."""
        shares = self.means()
        return mean(shares[-max(1, len(shares) // 10) :]) - self.target


def record_tracking(method: str, spec: TrackingSpec, images: ImageSet) -> Tracked:
    """Train the small CNN with the threshold rule ``method`` ("dts", "gaussian", ...), recording every step."""
    data = DeviceImages(images, torch.device("cpu"))
    torch.manual_seed(spec.seed)
    model = build_network("small", images.channels, spec.width)
    acf.sparsify_(model, acf.GradientSparsity(spec.target, method, seed=spec.seed, at="input"))
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rise_and_fall(step, spec.steps))
    generator = torch.Generator().manual_seed(spec.seed)
    layers: dict[str, list[float]] = {}
    for _ in range(spec.steps):
        indices = torch.randint(len(data), (spec.batch,), generator=generator)
        train_step(model, optimizer, data.train_batch(indices, generator))
        schedule.step()
        for name, layer in tracking(model).items():
            if layer.step > 0:  # no gradient flows back into the images
                layers.setdefault(name, []).append(round(layer.sparsity, 5))
    return Tracked(method, spec.target, spec.warm_up_steps, measure_accuracy(model, data), layers)
