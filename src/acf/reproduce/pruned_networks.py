"""Steps of ResNet-50 pruned while it trains, as TensorDash's authors have it: what row T12 takes from them.

Training takes minutes, so T12 reads ``pruned_resnet50.json`` beside this file:

    acf capture resnet50 --sparsity 0.9 --pruning sparse-momentum --steps 150 ... --out sparse-momentum.safetensors
    acf traces sparse-momentum.safetensors dynamic-reparameterization.safetensors --json > figures.json

and then `write_record("figures.json", "pruned_resnet50.json")`.
"""

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from acf.errors import TraceError
from acf.records import data_of

RECORD = "pruned_resnet50.json"

_LABEL = re.compile(r"(?P<network>[^,]+), (?P<share>\d+%) sparse by (?P<method>[^:,]+)")
"""How `acf capture --pruning` labels a trace."""


def pruned_record(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What T12 needs of the figures that ``acf traces --json`` printed: TensorDash's compute speedup by method.

    ``source`` is what the traces say of themselves; add ``command``, ``machine`` and ``date`` of the run.
    """
    if not figures:
        raise TraceError("no figures of pruned steps; give what `acf traces FILE... --json` printed")
    speedups = {}
    for each in figures:
        found = _LABEL.match(each["label"])
        if found is None:
            raise TraceError(
                f"step {each['label']!r} was not pruned while it trained; capture it with --sparsity and --pruning"
            )
        speedups[f"{found['network']}, {found['method']}"] = float(each["tensordash"]["compute"])
    return {"source": "; ".join(each["label"] for each in figures), "speedups": speedups}


def recorded_steps() -> dict[str, Any] | None:
    """The record beside this file; None while no run has been recorded."""
    path = files("acf.reproduce").joinpath(RECORD)
    if not path.is_file():
        return None
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return stored


def write_record(figures: str, out: str) -> None:
    """Write the record of the figures in one file to another."""
    record = pruned_record(data_of(json.loads(Path(figures).read_text(encoding="utf-8"))))
    Path(out).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
