"""The options of `acf bench training`, and running what they ask for."""

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from acf.bench import OnProgress
from acf.bench.machine import choose_device
from acf.bench.training.comparison import ComparisonOptions, compare_variants
from acf.bench.training.load import load_task
from acf.bench.training.record import TrainingComparison, load_comparison, merge
from acf.bench.training.run import RunLength
from acf.bench.training.session import refuse_unfit
from acf.bench.training.task import TASKS, TaskSpec
from acf.bench.training.tuning import TuningOptions
from acf.bench.training.variant import Variant
from acf.errors import FileError, SparsityError
from acf.files import cache_directory, write_whole
from acf.options import flag_of, option
from acf.records import values_of
from acf.run_folder import only_process_writing

DEFAULT_VARIANTS = "dense,static-90/block=64/distribution=cost,rigl-90/block=64/distribution=cost/moves=33"
SIZES = ("width", "batch", "examples", "dtype")
OF_A_GPT = ("layers", "context", "vocabulary", "attention")
"""Options that override fields of the task, the second ones where the network is a GPT."""

NOT_IN_COMMAND = ("data", "logs", "out", "plot", "render")
"""Options that are paths of one machine, and say nothing about the runs."""


@dataclass(frozen=True)
class TrainingOptions:
    """A task, the variants that are compared on it, and how long they train: by epochs, steps or seconds."""

    task: str = option("resnet18", "resnet18, wrn28, gpt; small and gpt-small for a CPU.")
    variants: str = option(DEFAULT_VARIANTS, "Variants, separated by commas; the first is the baseline.")
    seeds: int = option(3, "Runs of every variant, from seed 0.", min=1)
    epochs: float = option(0.0, "Passes over the data.", min=0)
    steps: int = option(0, "Optimizer steps, in place of epochs.", min=0)
    seconds: float = option(0.0, "Seconds of training, in place of epochs; faster variants take more steps.", min=0)
    measurements: int = option(12, "How often quality is measured on the way, the end included.", min=1)
    tune_rates: tuple[float, ...] = option((), "Learning rates to try for every variant, on held-out training data.")
    tune_decays: tuple[float, ...] = option((), "Weight decays to try at the best rate, likewise.")
    tune_share: float = option(1.0, "Length of a trial as a share of a run.", min=0, max=1)
    width: int = option(0, "Width of the network; 0: the task's.", min=0)
    layers: int = option(0, "Layers of a GPT; 0: the task's.", min=0)
    context: int = option(0, "Tokens of a GPT's examples; 0: the task's.", min=0)
    vocabulary: int = option(0, "Entries of the BPE that is trained on a GPT's corpus; 0: the task's.", min=0)
    batch: int = option(0, "Examples of a step; 0: the task's.", min=0)
    examples: int = option(0, "Training images to use; 0: all.", min=0)
    attention: str = option("", "Attention that a GPT tries first on a GPU: cudnn, flash, efficient; default: cudnn.")
    dtype: str = option("", "Dtype of products: float32 or bfloat16; default: bfloat16 on a GPU, float32 on a CPU.")
    compiled: bool = option(False, "Compile the steps of all variants on a CPU too; on a GPU they always are.")
    interleaved: bool = option(
        False, "CPU: the variants of a seed take turns at every measurement, so that what else runs slows all alike."
    )
    device: str = option("auto", "auto, cpu or cuda.")
    data: Path | None = option(  # noqa: RUF009
        None, "Folder of the image sets, or the corpus of a GPT.", environment="ACF_DATA"
    )
    out: Path | None = option(None, "JSON of the runs; runs in it are not repeated.")  # noqa: RUF009
    logs: Path | None = option(None, "Folder of logs for `acf watch`, one for each run.")  # noqa: RUF009
    plot: Path | None = option(None, "SVG of the curves and of the frontier.")  # noqa: RUF009
    render: tuple[Path, ...] = option((), "Records to show together, separated by commas; nothing is trained.")

    def __post_init__(self) -> None:
        if self.plot is not None and self.plot.suffix != ".svg":
            raise FileError(f"--plot {self.plot} does not end in .svg, the format that is drawn; pass such as runs.svg")

    @property
    def spec(self) -> TaskSpec:
        """The task with the sizes that were asked for."""
        if self.task not in TASKS:
            raise SparsityError(f"task {self.task!r} is not one of {', '.join(TASKS)}; use one of these names")
        spec = TASKS[self.task]
        for name in OF_A_GPT:
            if getattr(self, name) and not spec.context:
                raise SparsityError(
                    f"--{name} {getattr(self, name)} is a GPT's, and {self.task} has none; leave it out"
                )
        given = {name: getattr(self, name) for name in (*SIZES, *OF_A_GPT) if getattr(self, name)}
        return replace(spec, **given, compiled=self.compiled)

    @property
    def length(self) -> RunLength:
        """How long a run is; 12 epochs unless something is said."""
        given = [name for name in ("epochs", "steps", "seconds") if getattr(self, name)]
        if len(given) > 1:
            raise SparsityError(f"{' and '.join(given)} are both given; a run has one length, so give one of them")
        epochs = self.epochs if given else 12.0
        return RunLength(epochs, self.steps, self.seconds, self.measurements)

    @property
    def command(self) -> str:
        """The command that repeats these runs, without paths."""
        words = ["acf", "bench", "training"]
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default and each.name not in NOT_IN_COMMAND:
                text = ",".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)
                words += [flag_of(each)] if value is True else [flag_of(each), text]
        return shlex.join(words)


def run_training_bench(options: TrainingOptions, on_progress: OnProgress) -> TrainingComparison:
    """Train what the options name and compare, or read the records they name; plot and record are written."""
    with only_process_writing(options.out):
        if not options.render:
            return _plotted(_trained(options, on_progress), options)
        with values_of(", ".join(map(str, options.render))):
            return _plotted(_rendered(options), options)


def _plotted(comparison: TrainingComparison, options: TrainingOptions) -> TrainingComparison:
    plot = options.plot or (options.render[0].with_suffix(".svg") if options.render else None)
    if plot is not None:
        from acf.bench.training.plot import training_svg

        write_whole(plot, training_svg(comparison).encode())
    return comparison


def _trained(options: TrainingOptions, on_progress: OnProgress) -> TrainingComparison:
    spec, length = options.spec, options.length
    names = tuple(name.strip() for name in options.variants.split(",") if name.strip())
    if not names:
        raise SparsityError("--variants names none; write such as dense,static-90/block=64")
    variants = [Variant.parse(name) for name in names]
    for variant in variants:
        variant.sizes(spec)  # refuse a bad name before the data is read
    tuning = TuningOptions(options.tune_rates, options.tune_decays, options.tune_share)
    device = torch.device(choose_device(options.device))
    if options.interleaved and device.type == "cuda":
        raise SparsityError(
            "--interleaved is for a CPU: memory on a GPU is measured run by run; leave it out, or pass --device cpu"
        )
    comparison = ComparisonOptions(
        names, options.seeds, options.out, tuning, options.command, options.logs, options.interleaved
    )
    torch.backends.cudnn.benchmark = True  # the best dense version there is
    task = load_task(spec, options.data, cache_directory() / "tokens", device)
    refuse_unfit(task, variants)
    return compare_variants(task, length, comparison, on_progress)


def _rendered(options: TrainingOptions) -> TrainingComparison:
    comparison = merge([(path, load_comparison(path)) for path in options.render])
    if options.out is not None:
        comparison.save(options.out)
    return comparison
