"""`acf bench tracking`: how closely gradient-threshold rules follow their target sparsity; figures, table and plot."""

import datetime
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acf.bench.columns import TRACKING
from acf.bench.machine import machine_name
from acf.bench.tracking.plot import tracking_svg
from acf.bench.tracking.recording import Tracked, TrackingSpec, record_tracking
from acf.columns import markdown_table, records
from acf.errors import SparsityError
from acf.files import write_whole
from acf.gradients import RULES
from acf.records import write_record
from acf.terminal import progress
from acf.zoo.data.images import load_images

DATA_SET = "fashion-mnist"


def run_tracking(methods: str, spec: TrackingSpec, data: Path | None, visible: bool) -> list[Tracked]:
    """Train on Fashion-MNIST with every rule of the comma-separated ``methods``."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in RULES:
            raise SparsityError(f"method {name!r} is not one of {', '.join(RULES)}; use one of these names")
    if not names:
        raise SparsityError("no method is named; pass such as dts,gaussian,static")
    images = load_images(DATA_SET, data)
    runs = []
    with progress(visible) as on_progress:
        for done, name in enumerate(names):
            on_progress(name, done / len(names))
            runs.append(record_tracking(name, spec, images))
    return runs


def figures(spec: TrackingSpec, runs: Sequence[Tracked]) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "data": "Fashion-MNIST",
        "machine": machine_name("cpu"),
        "date": datetime.date.today().isoformat(),
        "spec": asdict(spec),
        "runs": records(TRACKING, runs),
    }


def keep(spec: TrackingSpec, runs: Sequence[Tracked], folder: Path) -> None:
    """Write ``tracking.json``, ``tracking.svg`` and the table ``tracking-table.md`` into ``folder``."""
    write_record(folder / "tracking.json", "tracking", figures(spec, runs))
    write_whole(folder / "tracking.svg", tracking_svg(runs).encode())
    write_whole(folder / "tracking-table.md", markdown_table(TRACKING, runs).encode())
