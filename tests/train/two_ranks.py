"""Running a test's work in two processes of one gloo group on this machine."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import fsdp

WORLD_SIZE = 2

PROCESSES = torch.multiprocessing.get_context("forkserver")
"""Makes ranks: forks of one process that imports torch and acf once, and has neither threads nor a process group."""
PROCESSES.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "acf.train"])


def outcomes_of_two_ranks(work: Callable[[int, Path], Any], folder: Path) -> list[Any]:
    """What ``work(rank, folder)`` returns in each of two new processes; a function of a module, so that it is found."""
    torch.multiprocessing.start_processes(_run, (work, folder), nprocs=WORLD_SIZE, start_method="forkserver")
    return [torch.load(_result(folder, rank), weights_only=True) for rank in range(WORLD_SIZE)]


def join_group(rank: int, folder: Path, **settings: Any) -> None:
    """Make this process a rank of the gloo group that meets in ``folder``."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rendezvous = (folder / "rendezvous").as_uri()
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD_SIZE, **settings)


def fully_shard(module: nn.Module, **options: Any) -> nn.Module:
    """torch's, with a mean that FSDP itself takes of the sums: gloo of torch 2.8 sums where it is asked for a mean."""
    sharded = fsdp.fully_shard(module, **options)
    sharded.set_force_sum_reduction_for_comms(True)
    return sharded


def _run(rank: int, work: Callable[[int, Path], Any], folder: Path) -> None:
    join_group(rank, folder)
    torch.save(work(rank, folder), _result(folder, rank))
    gc.collect()  # wrappers of models must be gone before their process group is
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _result(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.pt"


def leaves(value: object) -> list[object]:
    """The leaves of nested dicts and lists, in order."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if children is None else [leaf for child in children for leaf in leaves(child)]


def assert_same(first: object, second: object) -> None:
    """All leaves are equal, bit by bit."""
    for mine, other in zip(leaves(first), leaves(second), strict=True):
        if mine is None:
            assert other is None
        else:
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(other))
