"""Tables of the command line."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from acf.units import binary_bytes, si

if TYPE_CHECKING:
    from acf.bench.epochs.figures import EpochFigures
    from acf.bench.fabric.comparison import PlayedStep
    from acf.bench.simulators import SimulatorTiming
    from acf.bench.traces import TraceFigures
    from acf.demo import DemoOutcome
    from acf.doctor import Finding
    from acf.metrics import AblationRecord
    from acf.nn import LayerTiming
    from acf.reproduce import Row
    from acf.sim import Result


def demo_table(outcome: "DemoOutcome") -> Table:
    """Accuracy, sparsity and hardware figures of every run on every architecture."""
    table = Table(
        title="One training step, dense and block-sparse",
        caption="speedup: over the dense run on the same architecture; utilisation: non-zero MACs / MAC slots",
    )
    for heading in (
        "run",
        "architecture",
        "accuracy",
        "sparsity",
        "cycles",
        "speedup",
        "utilisation",
        "energy",
    ):
        table.add_column(heading, justify="left" if heading in ("run", "architecture") else "right")
    records = {record.label: record for record in outcome.records}
    dense = {result.architecture: result for result in outcome.results if result.workload == outcome.records[0].label}
    for result in outcome.results:
        record = records[result.workload]
        table.add_row(
            result.workload,
            result.architecture,
            f"{record.test_accuracy:.1%}",
            f"{record.weight_sparsity:.1%}",
            f"{result.cycles:,}",
            f"{result.speedup_over(dense[result.architecture]):.2f}x",
            f"{result.utilization:.1%}",
            si(result.energy_j, "J"),
        )
    return table


def result_table(result: "Result") -> Table:
    """Every operation of one result, and their sum."""
    table = Table(
        title=f"{result.workload} on {result.architecture} "
        f"({si(result.clock_hz, 'Hz')}, {result.technology_nm} nm, {result.macs_per_cycle:,} MACs per cycle)",
        caption="\n".join(result.notes),
    )
    for heading in ("operation", "phase"):
        table.add_column(heading)
    for heading in ("cycles", "utilisation", "DRAM", "energy", "lost most to"):
        table.add_column(heading, justify="right")
    for op in result.ops:
        slots = op.cycles * result.macs_per_cycle
        reason = max(op.lost_slots, key=lambda name, lost=op.lost_slots: lost[name])  # type: ignore[misc]
        table.add_row(
            op.name,
            op.phase,
            f"{op.cycles:,}",
            f"{op.effectual_macs / slots:.1%}" if slots else "-",
            binary_bytes(op.dram_bytes),
            si(sum(op.energy_j.values()), "J"),
            f"{reason} {op.lost_slots[reason] / slots:.0%}" if slots else "-",
        )
    table.add_section()
    table.add_row(
        "whole step",
        "",
        f"{result.cycles:,}",
        f"{result.utilization:.1%}",
        binary_bytes(result.dram_bytes),
        si(result.energy_j, "J"),
        "",
    )
    return table


def comparison_table(results: "Sequence[Result]") -> Table:
    """One row per architecture; speedups refer to the first."""
    table = Table(
        title=f"{results[0].workload}: {len(results[0].ops)} operations",
        caption=f"speedup in seconds over {results[0].architecture}; peaks differ, see MACs per cycle and clock",
    )
    table.add_column("architecture")
    for heading in ("MACs per cycle", "clock", "cycles", "time", "speedup", "utilisation", "energy", "DRAM"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.architecture,
            f"{result.macs_per_cycle:,}",
            si(result.clock_hz, "Hz"),
            f"{result.cycles:,}",
            si(result.seconds, "s"),
            f"{result.speedup_over(results[0]):.2f}x",
            f"{result.utilization:.1%}",
            si(result.energy_j, "J"),
            binary_bytes(result.dram_bytes),
        )
    return table


def reproduce_table(rows: "Mapping[str, Row]") -> Table:
    """Every published figure beside ours, its tolerance and the verdict."""
    table = Table(title="published figures, reproduced", caption="set-ups: acf reproduce --json")
    for heading in ("row", "claim", "figure", "paper", "ours", "tolerance", "verdict"):
        table.add_column(heading, justify="right" if heading in ("paper", "ours", "tolerance") else "left")
    for name, row in rows.items():
        if not row.checks:
            table.add_row(name, row.claim, "", "", "", "", f"[yellow]{row.verdict}[/]")
        for place, check in enumerate(row.checks):
            first = place == 0
            verdict = "[green]reproduced[/]" if check.within else "[red]out of tolerance[/]"
            figures = (check.what, check.paper, f"{check.ours:.4g}", check.tolerance)
            table.add_row(name if first else "", row.claim if first else "", *figures, verdict)
    return table


def simulator_table(timings: "Sequence[SimulatorTiming]") -> Table:
    """How quickly traces are played."""
    table = Table(title="simulator speed, exact schedules", caption="memory: peak of this process so far")
    table.add_column("trace")
    for heading in ("architecture", "dense MACs", "time", "dense-equivalent MAC/s", "memory"):
        table.add_column(heading, justify="right")
    for timing in timings:
        table.add_row(
            timing.name,
            timing.architecture,
            si(timing.dense_macs, ""),
            si(timing.seconds, "s"),
            si(timing.macs_per_s, "/s"),
            binary_bytes(timing.peak_memory_bytes),
        )
    return table


def fabric_table(played: "Sequence[PlayedStep]", fabric: str) -> Table:
    """Whole steps on the fabric and its rivals; ratios are of the fabric over the machine of the row."""
    table = Table(
        title=f"one training step on {fabric} and on machines of equal MACs, clock and DRAM (GPUs: whole cards)",
        caption="faster, less energy: the fabric against the machine of the row, same step (aims against dense: 3-5x, "
        "2-4x)\nU: effectual MACs / MAC slots of all products (aim above 80 % at 90 % sparsity)\n"
        "whole step: with normalisation, activation, optimizer and mask updates, where the model has them",
    )
    table.add_column("step")
    table.add_column("machine")
    for heading in ("U", "products", "whole step", "energy", "faster", "less energy", "most lost to"):
        table.add_column(heading, justify="right")
    own = {(each.network, each.sparsity): each for each in played if each.machine == fabric}
    for each in played:
        mine = own[each.network, each.sparsity]
        reason, share = max(each.lost.items(), key=lambda item: item[1], default=("-", 0.0))
        rival = each.machine != fabric
        table.add_row(
            f"{each.network} {each.sparsity:.0%}",
            each.machine,
            f"{each.utilization:.1%}",
            si(each.seconds, "s"),
            si(each.step_seconds, "s"),
            si(each.energy_j, "J"),
            f"{each.seconds / mine.seconds:.2f}x" if rival else "",
            f"{each.energy_j / mine.energy_j:.2f}x" if rival else "",
            f"{reason} {share:.1%}",
        )
    return table


def fabric_layers_table(played: "PlayedStep") -> Table:
    """Every product of a step: utilisation, and the reason that cost it most."""
    table = Table(title=f"{played.network} {played.sparsity:.0%} on {played.machine}, by product")
    table.add_column("layer")
    table.add_column("pass")
    for heading in ("cycles", "U", "most lost to"):
        table.add_column(heading, justify="right")
    for row in played.by_op:
        lost = f"{row['most_lost_to']} {row['most_lost']:.1%}" if row["most_lost_to"] else "-"
        table.add_row(row["name"], row["phase"], f"{row['cycles']:,}", f"{row['utilization']:.1%}", lost)
    return table


def layer_table(timings: "Sequence[LayerTiming]", sparsity: float, block: int) -> Table:
    """Which layers of a model are faster block-sparse on this machine."""
    table = Table(
        title=f"forward and both gradients, {sparsity:.0%} sparse in blocks of {block}, this machine",
        caption="best of interleaved runs; acf.faster_layers gives a filter_fn that takes the layers that pay",
    )
    for heading in ("name", "layer", "input", "dense", "sparse", "ratio", "verdict"):
        table.add_column(heading, justify="right" if heading in ("dense", "sparse", "ratio") else "left")
    for timing in timings:
        measured = timing.ratio is not None
        table.add_row(
            timing.name,
            timing.layer,
            "x".join(str(size) for size in timing.input_shape),
            si(timing.dense_seconds or 0.0, "s") if measured else "-",
            si(timing.sparse_seconds or 0.0, "s") if measured else "-",
            f"{timing.ratio:.2f}x" if timing.ratio is not None else "-",
            "sparse pays" if timing.pays else f"stays dense: {timing.reason or 'slower sparse'}",
        )
    return table


def doctor_table(findings: "Sequence[Finding]") -> Table:
    """What the machine has and what follows."""
    table = Table(title="acf doctor")
    for heading in ("part", "found", "what follows"):
        table.add_column(heading)
    for finding in findings:
        mark = "[green]" if finding.present else "[yellow]"
        table.add_row(finding.part, f"{mark}{finding.found}[/]", finding.consequence)
    return table


def figures_table(figures: "Sequence[TraceFigures]") -> Table:
    """Zeros, products with a zero and speedups of several traces."""
    labels = "\n".join(each.label for each in figures)
    table = Table(
        title="Zeros of real training steps, and what skipping them gains",
        caption="A, W, G: zero activations, weights, output gradients; idle: MACs with a zero operand\n"
        "FP, BP, WU: forward, input gradient, weight gradient; compute: all, without DRAM; step: all, with DRAM\n"
        "tensordash over tensorcore; spartann (BP and WU) over itself without skipping; acf-512 over tensorcore-512\n"
        f"{labels}",
    )
    table.add_column("trace")
    idle, passes = ("idle FP", "BP", "WU"), ("tensordash FP", "BP", "WU", "compute", "step")
    for heading in ("A", "W", "G", *idle, *passes, "spartann", "acf-512"):
        table.add_column(heading, justify="right")
    for each in figures:
        shares = [each.zeros.get(role) for role in ("activation", "weight", "gradient")]
        shares += [each.idle_macs.get(phase) for phase in ("forward", "input_grad", "weight_grad")]
        speedups = [*each.tensordash.values(), each.spartann, each.fabric]
        table.add_row(
            each.label.split(":")[0],
            *("-" if share is None else f"{share:.0%}" for share in shares),
            *(f"{speedup:.2f}x" for speedup in speedups),
        )
    return table


def ablation_table(record: "AblationRecord") -> Table:
    """Mean and deviation of every measure at every place of an ablation."""
    from acf.metrics.ablation import MEASURES, written_spread

    table = Table(title=record.title, caption=f"{record.note}\n{record.conditions}")
    for heading in ("sparsity", "series", record.axis):
        table.add_column(heading)
    for name in record.measures:
        table.add_column(MEASURES[name].heading, justify="right")
    last = None
    for row in record.rows:
        if last not in (None, row.sparsity):
            table.add_section()
        last = row.sparsity
        cells = [written_spread(name, row.spreads.get(name)).replace(" %", "%") for name in record.measures]
        if row.failures and not row.spreads:
            cells = [f"[red]failed[/]: {escape(row.failures[0])}", *cells[1:]]
        table.add_row(f"{row.sparsity:.0%}", row.series, row.value, *cells)
    return table


def epochs_table(points: "Sequence[EpochFigures]") -> Table:
    """Zeros and speedups of steps captured over the epochs of one training run."""
    table = Table(
        title="What skipping zeros gains as training goes on",
        caption="A, G: zero activations and output gradients; accuracy: on held-out examples\n"
        f"{points[-1].figures.label}",
    )
    speedups = ("tensordash FP", "BP", "WU", "compute", "step", "spartann", "acf-512")
    for heading in ("epochs", "loss", "accuracy", "A", "G", *speedups):
        table.add_column(heading, justify="right")
    for point in points:
        shares = [point.accuracy, *(point.figures.zeros.get(role, 0.0) for role in ("activation", "gradient"))]
        gains = [*point.figures.tensordash.values(), point.figures.spartann, point.figures.fabric]
        table.add_row(
            str(point.epoch),
            f"{point.loss:.2f}",
            *(f"{share:.1%}" for share in shares),
            *(f"{gain:.2f}x" for gain in gains),
        )
    return table
