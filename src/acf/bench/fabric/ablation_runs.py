"""Run an ablation: every point over seeds and sparsities, written to the record as soon as it is measured."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from hashlib import sha256
from pathlib import Path

from acf import __version__
from acf.bench import OnProgress
from acf.bench.fabric.ablation import ABLATIONS, Ablation, Variation
from acf.bench.fabric.workloads import StepSpec
from acf.errors import AcfError, ArchitectureError
from acf.files import write_whole
from acf.metrics import MEASURES, AblationPoint, AblationRecord
from acf.metrics.ablation import written_spread
from acf.options import option
from acf.records import data_of, parse_json, write_record
from acf.sim.fabric import AdaptiveFabric
from acf.sim.registry import spec_of_kind

SAMPLES: dict[str, tuple[str, ...]] = {
    "transformer-base": ("encoder.0.",),
    "resnet50": ("layer1.1.", "layer2.1.", "layer3.1.", "layer4.1."),
}
"""Prefixes of the layers that represent a network: one encoder layer; one bottleneck of every stage."""

SMALL_EXAMPLES: dict[str, int] = {"transformer-base": 1024, "resnet50": 1}
"""Default tokens or images: an ablation then takes about a minute, ``network`` several."""


@dataclass(frozen=True)
class AblationOptions:
    """What all points share: network, ``examples`` (0: as `SMALL_EXAMPLES` says), sparsities, seeds, machine.

    ``whole``: all layers of the network instead of those of `SAMPLES`.
    """

    network: str = option("transformer-base", "transformer-base or resnet50.")
    examples: int = option(0, "Tokens or images; 0: a size that runs quickly.", min=0)
    sparsities: tuple[float, ...] = option((0.5, 0.75, 0.9), "Shares of blocks to drop.", flags=("--sparsity",))
    seeds: int = option(3, "How often blocks and zeros are drawn.", min=1)
    on: str = option("acf-512", "The fabric to vary: acf-512, acf-16384 or a .toml file.")
    whole: bool = option(False, "All layers of the network, not a sample of them.", flags=("--whole",))

    def __post_init__(self) -> None:
        if not self.sparsities or self.seeds < 1:
            raise ArchitectureError(
                f"{len(self.sparsities)} sparsities and {self.seeds} seeds give no point; give at least one of each"
            )
        for sparsity in self.sparsities:
            self.step(sparsity, 0)
        _ = self.fabric

    def step(self, sparsity: float, seed: int) -> StepSpec:
        """The step before variation."""
        return StepSpec(self.network, self.examples or SMALL_EXAMPLES.get(self.network, 1), sparsity, seed=seed)

    @property
    def fabric(self) -> AdaptiveFabric:
        """The machine before variation."""
        return spec_of_kind(AdaptiveFabric, self.on)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of the simulated layers; none: all."""
        return () if self.whole else SAMPLES[self.network]

    @property
    def conditions(self) -> str:
        """Machine, step and date in words."""
        fabric, step = self.fabric, self.step(self.sparsities[0], 0)
        layers = "all layers" if self.whole else "layers " + ", ".join(f"{prefix}*" for prefix in self.prefixes)
        seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return (
            f"{self.on}: {fabric.macs_per_cycle:,} MACs at {fabric.clock_hz / 1e6:.0f} MHz, {fabric.technology_nm} nm; "
            f"{self.network}, {layers}, {step.examples:,} {'images' if self.network == 'resnet50' else 'tokens'}, "
            f"random blocks; mean and sample deviation over {seeds}; {date.today().isoformat()}"
        )


def chosen_ablations(names: Sequence[str]) -> list[str]:
    """The named ablations, each once; none, or "all": every one."""
    for name in names:
        if name not in (*ABLATIONS, "all"):
            raise ArchitectureError(f"ablation {name!r} is not one of {', '.join(ABLATIONS)}, all; use these names")
    return list(ABLATIONS) if not names or "all" in names else list(dict.fromkeys(names))


def run_ablation(name: str, options: AblationOptions, folder: Path, on_progress: OnProgress) -> AblationRecord:
    """Measure an ablation into ``folder``, as ``name.json`` and ``name.md``; points that are there are not repeated.

    A point that fails is part of the record, with its reason; the next run tries it again.
    """
    ablation, path = ABLATIONS[name], folder / f"{name}.json"
    finished = {_key(point): point for point in _stored_points(path) if not point.failure}
    wanted = list(_planned(ablation, options))
    points: list[AblationPoint] = []
    for place, (plan, variation) in enumerate(wanted):
        on_progress(f"{name}: {plan.series}, {plan.value}, {plan.sparsity:.0%}, seed {plan.seed}", place / len(wanted))
        known = finished.get(_key(plan))
        points.append(known or _measure(plan, variation, ablation, options))
        if known is None:
            kept = [finished[_key(later)] for later, _ in wanted[place + 1 :] if _key(later) in finished]
            write_record(path, "ablations", _record(name, ablation, options, [*points, *kept]).to_dict())
    record = _record(name, ablation, options, _with_ratios(points, ablation))
    write_record(path, "ablations", record.to_dict())
    write_whole(folder / f"{name}.md", markdown(record).encode())
    on_progress(name, 1.0)
    return record


def markdown(record: AblationRecord) -> str:
    """The record as a table for a document."""
    headings = ["sparsity", "", record.axis, *(MEASURES[name].heading for name in record.measures)]
    lines = [f"## {record.title}", "", record.conditions + ".", "", record.note, ""]
    lines += ["| " + " | ".join(headings) + " |", "|---|---|---|" + "---:|" * len(record.measures)]
    for row in record.rows:
        figures = [written_spread(name, row.spreads.get(name)) for name in record.measures]
        lines.append("| " + " | ".join([f"{row.sparsity:.0%}", row.series, row.value, *figures]) + " |")
    lines += [
        f"\nFailed: {row.series}, {row.value}, {row.sparsity:.0%}: {why}" for row in record.rows for why in row.failures
    ]
    return "\n".join(lines) + "\n"


def _planned(ablation: Ablation, options: AblationOptions) -> Iterator[tuple[AblationPoint, Variation]]:
    """Every point to measure, still without figures, and its variation."""
    variations = ablation.vary(options.fabric, options.step(options.sparsities[0], 0))
    for sparsity in options.sparsities:
        for seed in range(options.seeds):
            for variation in variations:
                base = {"fabric": asdict(options.fabric), "step": asdict(options.step(sparsity, seed))}
                changed = {"fabric": base["fabric"] | variation.fabric, "step": base["step"] | variation.step}
                told = json.dumps(changed | {"layers": options.prefixes, "version": __version__})
                setting = sha256(told.encode()).hexdigest()[:16]
                yield AblationPoint(variation.series, variation.value, sparsity, seed, setting), variation


def _measure(plan: AblationPoint, variation: Variation, ablation: Ablation, options: AblationOptions) -> AblationPoint:
    try:
        fabric = replace(options.fabric, **variation.fabric)
        step = replace(options.step(plan.sparsity, plan.seed), **variation.step)
        return replace(plan, figures=ablation.figures(fabric, step, options.prefixes))
    except Exception as error:  # one failing point must not stop the others
        failure = str(error) if isinstance(error, AcfError) else f"{type(error).__name__}: {error}"
        return replace(plan, failure=failure or type(error).__name__)


def _with_ratios(points: Sequence[AblationPoint], ablation: Ablation) -> list[AblationPoint]:
    """The points with ``speedup`` over the baseline of their sparsity and seed, and their ``scaling`` efficiency."""
    series, value = ablation.baseline
    bases = {
        (point.series if not series else "", point.sparsity, point.seed): point.figures
        for point in points
        if point.figures and point.value == value and series in ("", point.series)
    }
    rated = []
    for point in points:
        base = bases.get((point.series if not series else "", point.sparsity, point.seed))
        if base and point.figures:
            speedup = base["seconds"] / point.figures["seconds"]
            scaling = speedup * base["macs"] / point.figures["macs"]
            point = replace(point, figures=point.figures | {"speedup": speedup, "scaling": scaling})
        rated.append(point)
    return rated


def _record(name: str, ablation: Ablation, options: AblationOptions, points: Sequence[AblationPoint]) -> AblationRecord:
    return AblationRecord(
        ablation=name,
        title=ablation.title,
        axis=ablation.axis,
        note=ablation.note,
        conditions=options.conditions,
        measures=ablation.measures,
        plotted=ablation.plotted,
        points=tuple(points),
    )


def _stored_points(path: Path) -> tuple[AblationPoint, ...]:
    """Points of an earlier run; none if the file is missing or damaged."""
    try:
        return AblationRecord.from_dict(data_of(parse_json(path.read_text(encoding="utf-8")))).points
    except (OSError, ValueError, RecursionError):
        return ()


def _key(point: AblationPoint) -> tuple[str, str, str]:
    return point.series, point.value, point.setting
