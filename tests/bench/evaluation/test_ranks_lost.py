"""A rank that is killed: the other one ends soon, with one line that names it, and the checkpoint is kept."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from acf.bench.evaluation.session import EvaluationSession
from acf.bench.evaluation.store import EvaluationStore
from acf.cli import main
from tests.train.two_ranks import PROCESSES, WORLD_SIZE

COMMAND = (
    "bench resnet50 --systems rigl --sparsity 0.5 --block 16 --size small --steps 6 --batch 16 --measurements 1"
    " --checkpoint-every 2 --seeds 1 --machines none --captured 0 --examples 64 --device cpu --out {out}"
)
MOST_SECONDS = 60
LAST_STEP = 3


def train(rank: int, folder: str, port: int, victim: int) -> None:
    """One process of the command; the victim kills itself before its fourth step."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    whole_step = EvaluationSession.train_step

    def deadly_step(session: EvaluationSession) -> object:
        if rank == victim and session.step == LAST_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole_step(session)

    EvaluationSession.train_step = deadly_step  # type: ignore[method-assign,assignment]
    sys.argv = ["acf", *COMMAND.format(out=folder).split()]
    sys.stderr = Path(folder, f"errors{rank}.txt").open("w")  # noqa: SIM115  # until the process ends
    main()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("victim", [0, 1])
def test_the_other_rank_ends_soon_with_one_line_that_names_the_lost_one(victim: int, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    port = free_port()
    ranks = [PROCESSES.Process(target=train, args=(rank, str(tmp_path), port, victim)) for rank in range(WORLD_SIZE)]
    for process in ranks:
        process.start()
    ranks[victim].join(timeout=240)
    died = time.monotonic()
    survivor = ranks[1 - victim]
    survivor.join(timeout=2 * MOST_SECONDS)
    waited_s = time.monotonic() - died
    for process in ranks:
        process.kill()
    assert ranks[victim].exitcode == -signal.SIGKILL
    line = (tmp_path / f"errors{1 - victim}.txt").read_text()
    assert survivor.exitcode == 2, line
    assert waited_s < MOST_SECONDS
    assert line.count("\n") == 1, line
    assert line.startswith(
        f"acf: rank {1 - victim} of 2 lost rank {victim}, which was killed or could not be reached ("
    )
    assert line.endswith(
        "; read what it said last, then call torchrun again: finished runs and the last checkpoint are kept\n"
    )
    with EvaluationStore(tmp_path / "resnet50", create=False) as store:
        assert store.checkpoint("rigl-50/block=16", 0).exists()
