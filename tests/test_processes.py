"""Workers do not outlive the process that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ACCURACY = """
import os, torch
from acf.bench.accuracy.pool import Workers, run_tasks
from acf.bench.accuracy.training import TrainingSpec
from acf.zoo.data.images import ImageSet

if __name__ == "__main__":
    spec = TrainingSpec("fashion-mnist", "small", width=16, epochs=1, batch=16, learning_rate=0.05, examples=64)
    pixels, labels = torch.zeros(64, 12, 12, 1, dtype=torch.uint8), torch.arange(64) % 10
    images = ImageSet("black", 0, pixels, labels, pixels, labels)
    runs = run_tasks(spec, images, [("dense", 0), ("dense", 1)], Workers(count=2))
    for _ in range(2):
        next(runs)
    print("idle", flush=True)
    input()
"""
FORK_SERVER = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from acf.processes import end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(2, multiprocessing.get_context("forkserver"), end_with_parent) as pool:
        list(pool.map(abs, range(8)))
        print("idle", flush=True)
        input()
"""


def children(process: int) -> set[int]:
    """The processes below ``process``, however deep."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = int(status.parent.name), status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents[number] = int(rest[1])
    below = {process}
    while more := {number for number, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {process}


def living(processes: set[int]) -> set[int]:
    """Those that still run; a zombie does not."""
    found = set()
    for number in processes:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(number)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("script", [ACCURACY, FORK_SERVER], ids=["bench accuracy", "a pool of a fork server"])
def test_idle_workers_end_when_their_parent_is_killed(script: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(script)
    command = [sys.executable, str(tmp_path / "main.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "idle\n"
        workers = children(parent.pid)
        assert len(workers) >= 2
        os.kill(parent.pid, signal.SIGKILL)
    ends = time.monotonic() + 20
    while living(workers) and time.monotonic() < ends:
        time.sleep(0.05)
    assert living(workers) == set()
