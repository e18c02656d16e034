"""`acf bench accuracy`: train every method with every seed, and write each finished run to the record."""

import datetime
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path

from acf.bench.accuracy.comparison import Comparison
from acf.bench.accuracy.methods import recipe_of
from acf.bench.accuracy.pool import Workers, run_tasks
from acf.bench.accuracy.training import TrainingSpec
from acf.bench.columns import accuracy_markdown
from acf.bench.machine import choose_device, machine_name
from acf.files import write_whole
from acf.options import option
from acf.run_folder import only_process_writing
from acf.terminal import progress
from acf.zoo.data.images import load_images

_NO_OPTION = ("weight_decay",)
METHODS = (
    "dense",
    "dst-50",
    "dst-75",
    "dst-90",
    "static-90",
    "set-90",
    "bdwp-2:4",
    "bdwp-2:8",
    "dts-0.5",
    "dts-0.7",
)
"""The methods that are compared by default."""


@dataclass(frozen=True)
class AccuracyOptions:
    """Names of methods, separated by commas, and number of seeds; where data and results are; how the runs are done.

    ``budget_s``: no run is started that might end later than this, 0: no limit.
    """

    methods: str = option("", "Methods, separated by commas: dense,dst-90,bdwp-2:8,dts-0.5. Default: ten of them.")
    seeds: int = option(3, "Runs of every method, from seed 0.", min=1)
    data: Path | None = option(  # noqa: RUF009
        None, "Folder that holds cifar10-jpeg/ or fashion-mnist/.", environment="ACF_DATA"
    )
    device: str = option("auto", "auto, cpu or cuda.")
    workers: int = option(1, "Runs at a time, in processes that share the device.", min=1)
    budget_s: float = option(0.0, "Seconds after which no run may end; 0: no limit.", flags=("--budget",))
    out: Path | None = option(  # noqa: RUF009
        None, "JSON of the runs, and a Markdown table beside it; runs in it are not repeated."
    )

    @property
    def names(self) -> list[str]:
        """The methods, each once; `METHODS` if none is named."""
        given = [name.strip() for name in self.methods.split(",") if name.strip()]
        return list(dict.fromkeys(given or METHODS))


def compare_methods(spec: TrainingSpec, options: AccuracyOptions, visible: bool = True) -> Comparison:
    """Do the runs that ``options.out`` does not hold yet; record and table are rewritten after each."""
    for name in options.names:
        recipe_of(name, spec.block)
    with only_process_writing(options.out):
        return _compare(spec, options, visible)


def _compare(spec: TrainingSpec, options: AccuracyOptions, visible: bool) -> Comparison:
    device = choose_device(options.device)
    comparison = Comparison.resume(options.out, spec)
    tasks = comparison.pending(options.names, range(options.seeds))
    if not tasks:
        return comparison
    images = load_images(spec.data_set, options.data, spec.examples, spec.held_out)
    comparison.data, comparison.machine = images.name, machine_name(device)
    comparison.date = datetime.date.today().isoformat()
    command = command_of(spec, options)
    if command not in comparison.commands:
        comparison.commands.append(command)
    with progress(visible) as on_progress:
        records = run_tasks(spec, images, tasks, Workers(device, options.workers, options.budget_s or inf))
        for finished, record in enumerate(records, start=1):
            comparison.runs.append(record)
            if options.out is not None:
                comparison.save(options.out)
                write_whole(options.out.with_suffix(".md"), accuracy_markdown(comparison).encode())
            on_progress(f"{record.method} seed {record.seed}: {record.accuracy:.2f} %", finished / len(tasks))
    return comparison


def command_of(spec: TrainingSpec, options: AccuracyOptions) -> str:
    """The command that repeats these runs, without the paths of data and results."""
    given = {field.name: getattr(spec, field.name) for field in fields(spec)}
    changed = {name: value for name, value in given.items() if name not in _NO_OPTION}
    parts = [f"--{name.replace('_', '-')} {value}" for name, value in changed.items()]
    if tuple(options.names) != METHODS:
        parts.insert(0, f"--methods {','.join(options.names)}")
    return " ".join(["acf bench accuracy", *parts, f"--seeds {options.seeds}", f"--workers {options.workers}"])
