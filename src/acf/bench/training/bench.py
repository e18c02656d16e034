"""The options of `acf bench training`, and running what they ask for."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from acf.bench import OnProgress
from acf.bench.machine import choose_device
from acf.bench.training.comparison import ComparisonOptions, TrainingComparison, compare_variants
from acf.bench.training.run import RunLength
from acf.bench.training.task import TASKS, TaskSpec, load_task
from acf.bench.training.variant import Variant
from acf.errors import SparsityError
from acf.files import cache_directory
from acf.options import option

DEFAULT_VARIANTS = "dense,static-90/block=64/distribution=cost,rigl-90/block=64/distribution=cost/moves=33"


@dataclass(frozen=True)
class TrainingOptions:
    """A task, the variants that are compared on it, and how long they train: by epochs, steps or seconds."""

    task: str = option("resnet18", "resnet18, wrn28, gpt; small and gpt-small for a CPU.")
    variants: str = option(DEFAULT_VARIANTS, "Variants, separated by commas; the first is the baseline.")
    seeds: int = option(3, "Runs of every variant, from seed 0.", min=1)
    epochs: float = option(0.0, "Passes over the data.", min=0)
    steps: int = option(0, "Optimizer steps, in place of epochs.", min=0)
    seconds: float = option(0.0, "Seconds of training, in place of epochs; sparse runs then take more steps.", min=0)
    measurements: int = option(12, "How often quality is measured on the way, the end included.", min=1)
    width: int = option(0, "Width of the network; 0: the task's.", min=0)
    batch: int = option(0, "Examples of a step; 0: the task's.", min=0)
    examples: int = option(0, "Training images to use; 0: all.", min=0)
    device: str = option("auto", "auto, cpu or cuda.")
    data: Path | None = option(  # noqa: RUF009
        None, "Folder of the image sets, or the corpus of a GPT.", environment="ACF_DATA"
    )
    out: Path | None = option(None, "JSON of the runs; runs in it are not repeated.")  # noqa: RUF009

    @property
    def spec(self) -> TaskSpec:
        """The task with the sizes that were asked for."""
        if self.task not in TASKS:
            raise SparsityError(f"task {self.task!r} is not one of {', '.join(TASKS)}; use one of these names")
        spec = TASKS[self.task]
        return replace(
            spec,
            width=self.width or spec.width,
            batch=self.batch or spec.batch,
            examples=self.examples or spec.examples,
        )

    @property
    def length(self) -> RunLength:
        """How long a run is; 12 epochs unless something is said."""
        given = [name for name in ("epochs", "steps", "seconds") if getattr(self, name)]
        if len(given) > 1:
            raise SparsityError(f"{' and '.join(given)} are both given; a run has one length, so give one of them")
        epochs = self.epochs if given else 12.0
        return RunLength(epochs, self.steps, self.seconds, self.measurements)


def run_training_bench(options: TrainingOptions, on_progress: OnProgress) -> TrainingComparison:
    """Train what the options name, and compare."""
    spec, length = options.spec, options.length
    names = tuple(name.strip() for name in options.variants.split(",") if name.strip())
    for name in names:
        Variant.parse(name)  # refuse a bad name before the data is read
    comparison = ComparisonOptions(names, options.seeds, options.out)
    device = torch.device(choose_device(options.device))
    torch.backends.cudnn.benchmark = True  # the best dense version there is
    task = load_task(spec, options.data, cache_directory() / "tokens", device)
    return compare_variants(task, length, comparison, on_progress)
