"""The options of `acf bench pong`, and running what they ask for."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from acf import __version__
from acf.bench import OnProgress
from acf.bench.evaluation.machines import MACHINES
from acf.bench.machine import choose_device
from acf.bench.pong.agent import pong_variant
from acf.bench.pong.environment import AtariPong, VectorEnvironment
from acf.bench.pong.loop import Harness, OnPoint, train_on_pong
from acf.bench.pong.record import ScorePoint
from acf.bench.pong.settings import DqnSettings
from acf.bench.pong.store import PongStore, existing_store
from acf.bench.provenance import provenance
from acf.errors import DataError, FileError, SparsityError
from acf.files import write_whole
from acf.options import option
from acf.run_folder import only_process_in

DEFAULT_VARIANTS = "dense,static-90/block=32,rigl-90/block=32"
DEFAULT_SYSTEMS = ",".join(MACHINES)
"""Machines that play the captured steps, those of the other benchmarks."""

TRAINING_SHARE = 0.95
"""Part of the progress bar that training takes; the rest is simulation."""


@dataclass(frozen=True)
class PongOptions:
    """The variants to compare, and where the records are."""

    variants: str = option(DEFAULT_VARIANTS, "Variants, separated by commas.")
    seeds: int = option(3, "Runs of every variant, from seed 0.", min=1)
    device: str = option("auto", "auto, cpu or cuda.")
    threads: int = option(0, "Threads of the emulators; 0: as many as there are processors.", min=0)
    points: int = option(60, "How often score and checkpoint are written in a run.", min=1)
    captured: int = option(32, "Transitions of the steps captured at start, middle and end; 0: none.", min=0)
    systems: str = option(
        DEFAULT_SYSTEMS, "Modelled machines that play the captured steps, with commas; none: no simulation."
    )
    evaluation: bool = option(True, "Play one episode in every game after training, with 1 % random actions.")
    out: Path = option(Path("runs/pong"), "Folder of the records; runs in it are continued, not repeated.")  # noqa: RUF009
    plot: Path | None = option(None, "SVG of the score by time and by frames.")  # noqa: RUF009
    render: bool = option(False, "Show the records of --out and simulate what is missing; nothing is trained.")

    def __post_init__(self) -> None:
        if self.plot is not None and self.plot.suffix != ".svg":
            raise FileError(f"--plot {self.plot} does not end in .svg, the format that is drawn; pass such as pong.svg")
        if not self.names:
            raise SparsityError("--variants names none; write such as dense,static-90/block=32")
        for name in self.names:
            pong_variant(name)
        if self.machines:
            from acf.sim import spec  # only here and in `simulate_missing`: training needs torch and numpy alone

            for machine in self.machines:
                spec(machine)

    @property
    def names(self) -> tuple[str, ...]:
        """The variants."""
        return tuple(dict.fromkeys(name.strip() for name in self.variants.split(",") if name.strip()))

    @property
    def machines(self) -> tuple[str, ...]:
        """The modelled machines."""
        if self.systems.strip() == "none":
            return ()
        return tuple(dict.fromkeys(name.strip() for name in self.systems.split(",") if name.strip()))


MakeEnvironment = Callable[[int, int], VectorEnvironment]
"""Makes so many games with so many threads."""


def run_pong_bench(
    options: PongOptions, settings: DqnSettings, on_progress: OnProgress, make: MakeEnvironment = AtariPong
) -> PongStore:
    """Train what the options name, or open the records they name; then simulate the captured steps."""
    if options.render:
        return _completed(existing_store(options.out), options, on_progress, 0.0)
    with only_process_in(options.out):
        store = _trained(options, settings, on_progress, make)
        return _completed(store, options, on_progress, TRAINING_SHARE)


def _completed(store: PongStore, options: PongOptions, on_progress: OnProgress, begin: float) -> PongStore:
    """The store with the figures of the modelled machines; the plot is drawn."""
    if options.machines:
        from acf.bench.pong.systems import simulate_missing

        simulate_missing(store, options.machines, lambda what, share: on_progress(what, begin + (1.0 - begin) * share))
    if options.plot is not None:
        from acf.bench.pong.plot import pong_svg

        write_whole(options.plot, pong_svg(store.rows(ScorePoint)).encode())
    on_progress("done", 1.0)
    return store


def _trained(options: PongOptions, settings: DqnSettings, on_progress: OnProgress, make: MakeEnvironment) -> PongStore:
    device = torch.device(choose_device(options.device))
    environment = make(settings.games, options.threads)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    try:
        store = PongStore(options.out)
        facts = _facts(device, environment)
        store.require_settings(
            settings.to_dict() | {name: facts[name] for name in ("machine", "game")} | {"captured": options.captured}
        )
        harness = Harness(
            settings,
            environment,
            device,
            store,
            options.points,
            options.captured,
            options.evaluation,
            session=store.add_session(facts),
        )
        _train_all(harness, options, on_progress)
        return store
    finally:
        environment.close()


def _train_all(harness: Harness, options: PongOptions, on_progress: OnProgress) -> None:
    """Every variant with every seed, the variants taking turns; finished runs are left as they are."""
    wanted = [(name, seed) for seed in range(options.seeds) for name in options.names]
    for index, (name, seed) in enumerate(wanted):
        if harness.store.find(name, seed) is not None:
            continue
        tell = _teller(on_progress, f"{name}, seed {seed}", index, len(wanted))
        tell(0.0, None)
        try:
            train_on_pong(harness, name, seed, tell)
        except torch.cuda.OutOfMemoryError as error:
            raise DataError(
                f"batch {harness.settings.batch} with a buffer of {harness.settings.capacity} does not fit the GPU's "
                "memory; use a smaller --batch or --capacity with another --out"
            ) from error


def _teller(on_progress: OnProgress, what: str, index: int, runs: int) -> OnPoint:
    """Reports the progress of the run ``index`` of so many ``runs``, with its score."""

    def tell(share: float, score: float | None) -> None:
        text = "" if score is None else f", score {score:+.1f}"
        on_progress(f"{what}{text}", TRAINING_SHARE * (index + share) / runs)

    return tell


def _facts(device: torch.device, environment: VectorEnvironment) -> dict[str, str]:
    """What a reader must know of the machine and the software, when it was, and the command."""
    return provenance(device.type) | {
        "game": environment.name,
        "python": platform.python_version(),
        "acf": __version__,
        **{name: _version(name) for name in ("numpy", "ale-py", "gymnasium")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
