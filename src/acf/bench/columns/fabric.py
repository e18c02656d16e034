"""Columns of `acf bench fabric`: whole steps and their products."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from acf.bench.columns.formats import MOST_LOST, SECONDS
from acf.columns import COUNT, RATIO, SHARE, Column, Format, si_format, terminal_table

if TYPE_CHECKING:
    from acf.bench.fabric.comparison import PlayedStep


def fabric_columns(played: "Sequence[PlayedStep]", fabric: str) -> "tuple[Column[PlayedStep], ...]":
    """`acf bench fabric`: one row for each step and machine; ratios are of the machine over ``fabric``."""
    own = {(each.network, each.sparsity): each for each in played if each.machine == fabric}

    def over_fabric(figure: "Callable[[PlayedStep], float]") -> "Callable[[PlayedStep], float | None]":
        def ratio(each: "PlayedStep") -> float | None:
            is_rival = each.machine != fabric
            return figure(each) / figure(own[each.network, each.sparsity]) if is_rival else None

        return ratio

    rival_ratio = Format(RATIO.plain, absent="")
    return (
        Column("step", "step", lambda each: f"{each.network} {each.sparsity:.0%}"),
        Column("machine", "machine", lambda each: each.machine),
        Column("step_utilization", "U", lambda each: each.step_utilization, SHARE),
        Column("utilization", "U, products", lambda each: each.utilization, SHARE),
        Column("step_seconds", "whole step", lambda each: each.step_seconds, SECONDS),
        Column("seconds", "products", lambda each: each.seconds, SECONDS),
        Column("energy_j", "energy", lambda each: each.energy_j, si_format("J")),
        Column("faster", "faster", over_fabric(lambda each: each.step_seconds), rival_ratio),
        Column("products_faster", "products", over_fabric(lambda each: each.seconds), rival_ratio),
        Column("less_energy", "less energy", over_fabric(lambda each: each.energy_j), rival_ratio),
        Column(
            "most_lost",
            "lost most to",
            lambda each: max(each.lost.items(), key=lambda item: item[1], default=("-", 0.0)),
            MOST_LOST,
        ),
    )


def fabric_table(played: "Sequence[PlayedStep]", fabric: str) -> Table:
    """Whole steps on the fabric and its rivals."""
    return terminal_table(
        fabric_columns(played, fabric),
        played,
        f"one training step on {fabric} and on machines of equal MACs, clock and DRAM (GPUs: whole cards)",
        "faster, less energy: whole steps on the fabric against the machine of the row; products: of products alone\n"
        "U: effectual MACs / MAC slots of the whole step, and of its products (aim above 80 % at 90 % sparsity)\n"
        "whole step: with normalisation, activation, softmax, residual, loss and optimizer, overlapped with products"
        + "".join(f"\n{_update_line(each)}" for each in played if each.update),
    )


def _update_line(played: "PlayedStep") -> str:
    """What Algorithm 1 costs a fabric, in words."""
    update = played.update or {}
    total = sum(update["cycles"].values())
    parts = ", ".join(f"{part.replace('_', ' ')} {cycles / total:.1%}" for part, cycles in update["cycles"].items())
    return (
        f"{played.sparsity:.0%}: pruning and regrowing every {update['every_steps']} steps (Algorithm 1) takes "
        f"{update['share_of_run']:.1%} of a run on top of the steps: {parts}"
    )


FABRIC_PRODUCT: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "layer", lambda product: product["name"]),
    Column("phase", "pass", lambda product: product["phase"]),
    Column("cycles", "cycles", lambda product: product["cycles"], COUNT),
    Column("utilization", "utilisation", lambda product: product["utilization"], SHARE),
    Column(
        "most_lost",
        "lost most to",
        lambda product: (product["most_lost_to"], product["most_lost"]) if product["most_lost_to"] else None,
        MOST_LOST,
    ),
)
"""`acf bench fabric --layers`: one row for each matrix product of a step."""


def fabric_products_table(played: "PlayedStep") -> Table:
    """Every product of a step: utilisation, and the reason that cost it most."""
    title = f"{played.network} {played.sparsity:.0%} on {played.machine}, by product"
    return terminal_table(FABRIC_PRODUCT, played.by_op, title)
