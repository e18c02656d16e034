"""Measure what a step that scores absent blocks needs in memory beside an ordinary sparse step.

    python examples/scoring_memory.py [--device cuda] [--record scoring-memory.json]

A 4096 x 4096 linear layer at 90 %, float32, SGD with momentum. *In all*: the most bytes alive at a time, parameters,
optimizer state and topology included. *Within the step*: the same without what was alive before the step began, so
activations, gradient and what scoring and moving take. On a CPU every allocation of torch's allocator is followed
through the profiler; what the C++ of top-k and of the kernels takes for itself, within a call, is not seen. On a GPU
it is the caching allocator's own peak.
"""

import argparse
import datetime
import gc
import json
import shlex
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import acf
from acf.records.provenance import commit_of, machine

FEATURES = 4096


@dataclass(frozen=True)
class StepMemory:
    """Bytes alive before the steps, and the peaks beyond that within an ordinary step and within one that scores."""

    stored_bytes: int
    ordinary_bytes: int
    scoring_bytes: int

    @property
    def ratio_in_all(self) -> float:
        """Peak of the scoring step over that of the ordinary one, everything alive counted."""
        return (self.stored_bytes + self.scoring_bytes) / (self.stored_bytes + self.ordinary_bytes)

    @property
    def ratio_within_the_step(self) -> float:
        """The same of what the steps themselves allocate."""
        return self.scoring_bytes / self.ordinary_bytes


def measure(tokens: int, spec: acf.BlockSparsity, policy: acf.BlockDST, device: str = "cpu") -> StepMemory:
    """Steps 3 and 4 of a ``policy`` that moves blocks at every second; the first two warm up."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES, bias=False)).to(device)
    acf.sparsify_(model, spec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    controller = acf.attach(model, optimizer, policy)

    def step() -> None:
        x = torch.randn(tokens, FEATURES, device=device)
        model(x).square().mean().backward()
        optimizer.step()

    peaks = []
    for moves in (False, True, False, True):
        assert controller.moves_next is moves
        optimizer.zero_grad()
        gc.collect()  # what is freed within the step must have been taken within it
        peaks.append(_cuda_peak(step) if device.startswith("cuda") else _cpu_peak(step))
    state = [value for each in optimizer.state.values() for value in each.values() if isinstance(value, torch.Tensor)]
    stored = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), *state))
    return StepMemory(stored, ordinary_bytes=peaks[2], scoring_bytes=peaks[3])


def _cpu_peak(step: Callable[[], None]) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler warns of what it does with its own events
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
            step()
    held = most = 0
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def _cuda_peak(step: Callable[[], None]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


TIMES = {"total_steps": 100, "every": 2}
POLICIES = {
    "all absent blocks": (acf.BlockDST(**TIMES), "uniform"),
    "a tenth of them": (acf.BlockDST(**TIMES, candidates=0.1), "uniform"),
    "input-aware": (acf.BlockDST(**TIMES, score="input_aware"), "uniform"),
    "balanced": (acf.BlockDST(**TIMES), "balanced"),
}


def cases() -> list[tuple[str, int, int]]:
    """Policy, block and tokens of every row."""
    with_blocks_of_16 = [(name, 16, tokens) for name in POLICIES for tokens in (1, 16, 64, 256)]
    return with_blocks_of_16 + [("all absent blocks", block, tokens) for block in (8, 32, 64) for tokens in (1, 64)]


def row_of(name: str, block: int, tokens: int, device: str) -> dict[str, Any]:
    """Bytes and ratios of one row, as plain values."""
    policy, distribution = POLICIES[name]
    memory = measure(tokens, acf.BlockSparsity(0.9, block=block, distribution=distribution), policy, device)
    ratios = {"ratio_in_all": memory.ratio_in_all, "ratio_within_the_step": memory.ratio_within_the_step}
    return {"scored": name, "block": block, "tokens": tokens} | asdict(memory) | ratios


def line_of(row: dict[str, Any]) -> str:
    """A row as a line of the table."""
    mib = [(row["stored_bytes"] + row[peak]) / 2**20 for peak in ("ordinary_bytes", "scoring_bytes")]
    ratios = f"{row['ratio_in_all']:.3f} | {row['ratio_within_the_step']:.3f}"
    return f"| {row['scored']} | {row['block']} | {row['tokens']} | {mib[0]:.1f} | {mib[1]:.1f} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of a scoring step over that of an ordinary one.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--record", type=Path, help="JSON of the rows")
    options = parser.parse_args()
    print("| scored | block | tokens | ordinary step, MiB | scoring step, MiB | in all | within the step |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for case in cases():
        rows.append(row_of(*case, options.device))
        print(line_of(rows[-1]), flush=True)
    if options.record is not None:
        record = {
            "command": shlex.join(["python", "examples/scoring_memory.py", *sys.argv[1:]]),
            "commit": commit_of(Path(acf.__file__).parent),
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "rows": rows,
        }
        options.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
