"""The options of `acf bench resnet50` and `acf bench transformer`, and running what they ask for."""

import shlex
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from acf.bench import OnProgress
from acf.bench.evaluation import cnn, resnet50, transformer
from acf.bench.evaluation.ablation import FABRIC, INTERCONNECTS, Base, Point, ablation_points, ablation_rows
from acf.bench.evaluation.columns import evaluation_markdown
from acf.bench.evaluation.machines import MACHINES, check_machines, simulate_traces
from acf.bench.evaluation.ranks import current_ranks, is_first_process, joined
from acf.bench.evaluation.rows import NOT_MEASURABLE, EvaluationTable, evaluation_table
from acf.bench.evaluation.skipping import measure_skipping
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.evaluation.systems import System, kind_of, systems_of
from acf.bench.evaluation.task import EvaluationTask
from acf.bench.evaluation.training import RunPlan, train_system
from acf.bench.machine import choose_device
from acf.bench.training.record import session_facts
from acf.bench.training.session import refuse_unfit
from acf.errors import FileError, SparsityError
from acf.files import check_name, write_whole
from acf.options import flag_of, option
from acf.run_folder import only_process_in

TABLE, LOSSES = "evaluation.md", "losses.svg"
NOT_CONFIGURATION = (
    "systems", "sparsities", "seeds", "machines", "traced", "traced_seeds", "ablate", "target", "data", "out", "name",
    "simulate", "skipping", "render",
)  # fmt: skip
"""Options that may differ between calls that fill one folder."""

NOT_IN_COMMAND = ("data", "out", "name", "simulate", "skipping", "render")
"""Options that are paths of one machine, or say nothing about the runs."""


@dataclass(frozen=True)
class EvaluationOptions(ABC):
    """Systems, sparsities and seeds of one benchmark, how long a run is, and where the runs are kept."""

    systems: str = option(
        "dense,masked,rigl,static,2:4",
        "Systems, separated by commas, such as rigl or dense/rate=2e-4; the first is the baseline.",
    )
    sparsities: tuple[float, ...] = option(
        (0.5, 0.75, 0.9), "Shares of weights to train without.", flags=("--sparsity",)
    )
    block: int = option(64, "Side of a block.", min=1)
    seeds: int = option(3, "Runs of every system, from seed 0.", min=1)
    size: str = option("base", "base: the network itself; small: one that a CPU trains in seconds.")
    epochs: float = option(10.0, "Passes over the data.", min=0)
    steps: int = option(0, "Optimizer steps, in place of epochs.", min=0)
    batch: int = option(128, "Examples of a step.", min=1)
    measurements: int = option(10, "How often quality is measured, the end included.", min=1)
    checkpoint_every: int = option(200, "Steps between checkpoints; an interruption loses at most these.", min=1)
    target: float = option(0.0, "Quality whose time is reported; 0: the final one of the first system.")
    captured: int = option(4, "Examples of a traced step; 0: no traces and no simulated machines.", min=0)
    traced: str = option(
        "dense,rigl", "Systems that are traced, at start, middle and end of seed 0; such as rigl-90/block=64 for one."
    )
    traced_seeds: int = option(1, "Seeds that are traced, those after 0 at the end alone; machines play seed 0.", min=1)
    machines: str = option(",".join(MACHINES), "Simulated machines, separated by commas; none: traces are kept.")
    ablate: str = option(
        "",
        "Vary block, regrow or interconnect, with commas: variants of rigl at the highest sparsity, with its settings.",
    )
    device: str = option("auto", "auto, cpu or cuda.")
    data_set: str = option("", "Which set of the folder.")
    data: Path | None = option(None, "Folder of the data.", environment="ACF_DATA")  # noqa: RUF009
    out: Path = option(Path("runs"), "Folder for the folders of runs.")  # noqa: RUF009
    name: str = option("", "Name of the folder of runs; default: the benchmark's.")
    simulate: bool = option(False, "Only play kept traces; nothing is trained.")
    skipping: bool = option(False, "Also time a kernel that skips zero tiles on the traced products; needs a GPU.")
    render: bool = option(False, "Only show what is kept; nothing is trained or simulated.")

    benchmark: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.size not in ("base", "small"):
            raise SparsityError(f"size {self.size!r} is neither base nor small; use one of these")
        if not self.steps and not self.epochs:
            raise SparsityError("--epochs 0 without --steps trains nothing; give one of them")
        self.chosen_systems  # refuse bad names before the data is read  # noqa: B018
        self.chosen_machines  # noqa: B018

    @property
    def chosen_systems(self) -> list[System]:
        """What is trained."""
        named = systems_of(_names(self.systems), self.sparsities, self.block)
        varied = systems_of([point.system for point in self.points], (), self.block) if self.points else []
        return list({system.name: system for system in (*named, *varied)}.values())

    @property
    def points(self) -> list[Point]:
        """What ablations vary."""
        names = _names(self.ablate)
        given = next((kind for kind in _names(self.systems) if kind_of(kind) == "rigl"), "rigl")
        base = Base(max(self.sparsities), self.block, given.partition("/")[2])
        return ablation_points(names, base) if names else []

    @property
    def traced_systems(self) -> list[str]:
        """Names of the systems that are traced: all of a kind that is named, single ones by their whole names."""
        wanted, chosen = _names(self.traced), [system.name for system in self.chosen_systems]
        kinds = [kind for kind in _names(self.systems) if kind_of(kind) in wanted]
        named = [system.name for system in systems_of(kinds, self.sparsities, self.block)] if kinds else []
        varied = [point.system for point in self.points]
        return [name for name in chosen if name in (*named, *wanted, *varied)]

    @property
    def chosen_machines(self) -> tuple[str, ...]:
        """What traces are played on."""
        if self.machines == "none":
            return ()
        varied = [point.machine for point in self.points if point.machine in INTERCONNECTS]
        return tuple(dict.fromkeys([*check_machines(_names(self.machines)), *varied]))

    @property
    def folder(self) -> Path:
        """Where the runs are kept."""
        if self.name:
            check_name(self.name, "--name")
        return self.out / (self.name or self.benchmark)

    @property
    def configuration(self) -> dict[str, Any]:
        """What must be the same for all runs of one folder."""
        values = {name: value for name, value in asdict(self).items() if name not in NOT_CONFIGURATION}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def command(self) -> str:
        """The command that repeats these runs, without paths."""
        words = ["acf", "bench", self.benchmark]
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default and each.name not in NOT_IN_COMMAND:
                text = ",".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)
                words += [flag_of(each), text]
        return shlex.join(words)

    @abstractmethod
    def task(self, device: torch.device) -> EvaluationTask:
        """The benchmark with its data."""


@dataclass(frozen=True)
class ResNet50Options(EvaluationOptions):
    """ResNet-50 on images."""

    data_set: str = option("", "folder (ImageNet), cifar10-jpeg, cifar10, fashion-mnist or digits; see --data.")
    data: Path | None = option(  # noqa: RUF009
        None, "Folder of the image sets, or of train/ and val/; without it: the digits.", environment="ACF_DATA"
    )
    examples: int = option(0, "Training images to use; 0: all.", min=0)

    benchmark: str = field(default="resnet50", init=False)

    def task(self, device: torch.device) -> EvaluationTask:
        """ResNet-50."""
        spec = replace(resnet50.default_spec(self.size, self.batch, self.data_set), examples=self.examples)
        return resnet50.load_resnet50(self.data_set, self.data, spec, device)


@dataclass(frozen=True)
class TransformerOptions(EvaluationOptions):
    """Transformer-Base on sentence pairs."""

    batch: int = option(256, "Sentence pairs of a step.", min=1)
    captured: int = option(32, "Sentence pairs of a traced step; 0: no traces and no simulated machines.", min=0)
    data_set: str = option("", "multi30k, tatoeba, lines (train.en, train.de, ...) or rules; see --data.")
    data: Path | None = option(  # noqa: RUF009
        None, "Folder of the sets, or of the lines; without it: pairs of a small grammar.", environment="ACF_DATA"
    )
    direction: str = option("en-de", "en-de or de-en.")
    vocabulary: int = option(10_000, "Entries of the BPE; 37000 for WMT.", min=300)
    tokens: int = option(40, "Longest training sentence, in tokens; longer pairs are left out.", min=4)
    test_sentences: int = option(0, "Test sentences to translate for BLEU; 0: all.", min=0)
    beams: int = option(4, "Beams of the translation; 1: greedy.", min=1)

    benchmark: str = field(default="transformer", init=False)

    def task(self, device: torch.device) -> EvaluationTask:
        """Transformer-Base."""
        text = transformer.read_pairs(self.data_set, self.data, self.direction)
        lengths = transformer.TextLengths(self.tokens, self.vocabulary, self.test_sentences, self.beams)
        task = transformer.load_transformer(text, lengths, transformer.default_spec(self.size, self.batch), device)
        rate = transformer.peak_rate(self.size, self.steps or task.steps(self.epochs, self.batch))
        task.spec = replace(task.spec, rate=rate)
        return task


@dataclass(frozen=True)
class CnnOptions(EvaluationOptions):
    """SparTANN's small CNNs on images, with sparse gradients."""

    systems: str = option(
        "dense,dts-0.5,dts-0.7,random-0.5,topk-0.5", "Systems, separated by commas; the first is the baseline."
    )
    batch: int = option(64, "Images of a step.", min=1)
    measurements: int = option(20, "How often quality is measured, the end included.", min=1)
    captured: int = option(64, "Images of a traced step, as many as of a step; 0: no traces.", min=0)
    traced: str = option("dense,dts-0.5,dts-0.7", "Systems that are traced, at start, middle and end of seed 0.")
    machines: str = option("tensorcore-512,spartann", "Simulated machines, separated by commas; none: traces are kept.")
    data_set: str = option("", "fashion-mnist, cifar10-jpeg, cifar10 or digits; see --data.")
    data: Path | None = option(  # noqa: RUF009
        None, "Folder of the image sets; without it: the digits.", environment="ACF_DATA"
    )
    examples: int = option(0, "Training images to use; 0: all.", min=0)

    benchmark: str = field(default="cnn", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        cnn.require_whole_batches(self.chosen_systems, self.captured, self.batch)

    @property
    def chosen_systems(self) -> list[System]:
        """What is trained; gradients become sparse at the convolutions."""
        return cnn.convolutions_only(super().chosen_systems)

    def task(self, device: torch.device) -> EvaluationTask:
        """The CNN that SparTANN trains on such images."""
        return cnn.load_cnn(self.data_set, self.data, self.batch, self.examples, device)


def run_evaluation(options: EvaluationOptions, on_progress: OnProgress) -> EvaluationTable:
    """Train what the folder lacks, play the traces, and give the table of everything in the folder.

    Under `torchrun` the processes train together; the first of them measures and writes.
    """
    writes = is_first_process() and not options.render
    with only_process_in(options.folder if writes else None):
        return _evaluated(options, on_progress)


def _evaluated(options: EvaluationOptions, on_progress: OnProgress) -> EvaluationTable:
    if not (options.simulate or options.render):
        with joined(options.device, options.batch) as device:
            _train_all(options, options.task(device), with_remaining_time(on_progress))
            if not current_ranks().is_first:
                return EvaluationTable("", "", "", None, ())
    with EvaluationStore(options.folder, create=False) as store:
        if options.captured and not options.render:
            only = {point.machine: point.system for point in options.points if point.machine != FABRIC}
            simulate_traces(store, options.chosen_machines, with_remaining_time(on_progress), only)
        notes = _time_skipping(options, store, on_progress)
        table = evaluation_table(store, options.target or None)
        table = replace(table, notes=(*table.notes, *notes))
        table = replace(table, ablations=ablation_rows(options.points, table.rows))
        if not options.render:
            store.write_record()
        losses = _losses(table.title, store)
        if losses is not None:
            write_whole(options.folder / LOSSES, losses.encode())
        write_whole(options.folder / TABLE, evaluation_markdown(table, LOSSES if losses else "").encode())
        return table


def _losses(title: str, store: EvaluationStore) -> str | None:
    """The plot of the losses; None where a machine that only trains lacks plotly, whose house colours it has."""
    if find_spec("plotly") is None:
        return None
    from acf.bench.evaluation.plot import loss_svg

    return loss_svg(title, store.runs())


def _time_skipping(options: EvaluationOptions, store: EvaluationStore, on_progress: OnProgress) -> list[str]:
    """Time the zero-skipping kernel if that was asked for; a note where there is no GPU."""
    if not options.skipping or options.render:
        return []
    if choose_device(options.device) != "cuda":
        return [f"TensorDash-like kernel: {NOT_MEASURABLE}, there is no CUDA GPU"]
    measure_skipping(store, with_remaining_time(on_progress))
    return []


def _train_all(options: EvaluationOptions, task: EvaluationTask, on_progress: OnProgress) -> None:
    torch.backends.cudnn.benchmark = True
    refuse_unfit(task, (system.variant for system in options.chosen_systems))
    ranks, session = current_ranks(), 0
    if ranks.is_first:
        with EvaluationStore(options.folder) as store:
            store.configure(options.configuration | {"processes": ranks.count})
            session = store.begin_session(session_facts(task, options.command))
            _keep_facts(options, store, task)
    ranks.wait()
    if not ranks.is_first and not options.folder.is_dir():
        raise FileError(f"{options.folder} is not there for process {ranks.rank}; use an --out folder that all share")
    with EvaluationStore(options.folder, create=False) as store:
        _train_missing(options, task, store, session, on_progress)


def _train_missing(
    options: EvaluationOptions, task: EvaluationTask, store: EvaluationStore, session: int, on_progress: OnProgress
) -> None:
    systems, traced, ranks = options.chosen_systems, options.traced_systems, current_ranks()
    steps = options.steps or task.steps(options.epochs, options.batch)
    total, done = options.seeds * len(systems), 0
    for seed in range(options.seeds):  # systems take turns, so that a drifting machine disturbs all alike
        for system in systems:
            captured = options.captured if system.name in traced and seed < options.traced_seeds else 0
            plan = RunPlan(steps, options.measurements, options.checkpoint_every, captured)
            finished = store.has_run(system.name, seed)
            ranks.agree(f"whether {system.name}, seed {seed} is finished", finished)
            if not finished:
                what, before = f"{system.name}, seed {seed}", done

                def on_step(share: float, what: str = what, before: int = before) -> None:
                    on_progress(what, (before + share) / total)

                on_step(0.0)
                run = train_system(task, system, seed, plan, store, on_step)
                if ranks.is_first:
                    store.add_run(replace(run, session=session))
                    store.write_record()
            done += 1


def _keep_facts(options: EvaluationOptions, store: EvaluationStore, task: EvaluationTask) -> None:
    batch = task.captured_batch(max(1, options.captured))
    examples = float(len(batch[0])) if task.unit == "images" else float((batch[-1] != 0).sum())
    store.put_fact("captured_examples", examples)
    store.put_fact("references", list(task.references))
    facts = {
        "name": task.spec.name,
        "unit": task.unit,
        "quality": task.spec.quality,
        "higher_is_better": task.higher_is_better,
        "recipe": asdict(task.spec),
    }
    store.put_fact("task", facts)


def with_remaining_time(on_progress: OnProgress) -> OnProgress:
    """``on_progress`` with the estimated remaining time behind the description, once some work was done."""
    first: list[tuple[float, float]] = []

    def told(what: str, share: float) -> None:
        now = time.monotonic()
        if not first:
            first.append((now, share))
        started, before = first[0]
        left = (now - started) * (1.0 - share) / (share - before) if share > before else None
        on_progress(what if left is None else f"{what}, about {duration(left)} left", share)

    return told


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, rounded.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
