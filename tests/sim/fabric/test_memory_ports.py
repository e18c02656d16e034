"""A program from memory to memory in the simulator."""

import numpy as np
import pytest

import acf.sim
from acf.errors import ArchitectureError
from acf.lowering import Gemm, Program, lower_gemm
from acf.sim.fabric.memory_ports import MemoryPorts, play_through_ports
from acf.sim.fabric.play import play

SHAPE = acf.sim.spec("acf-512", mesh_rows=2, mesh_columns=2, scus_per_cluster=1, tile=8, link_bytes=16)


@pytest.fixture(scope="module")
def program() -> Program:
    rng = np.random.default_rng(0)
    return lower_gemm(Gemm(rng.random((40, 48)) < 0.5, rng.random((48, 40)) < 0.5), SHAPE)


def test_fast_ports_add_only_the_latencies_of_the_first_command_and_packet(program: Program) -> None:
    fast = play_through_ports(program, SHAPE, MemoryPorts(2, 1 << 20, latency_cycles=50, finish_cycles=7))
    on_chip = play(program, SHAPE).cycles
    assert on_chip + 50 + 7 < fast.cycles <= on_chip + 2 * 50 + 7


def test_a_slow_port_is_busy_all_the_time(program: Program) -> None:
    slow = play_through_ports(program, SHAPE, MemoryPorts(1, 1, latency_cycles=0, row_command_bytes=64))
    flits = int(program.rows.flits.sum() + program.columns.flits.sum())
    read_bytes = SHAPE.link_bytes * flits + 64 * program.rows.packets
    written_bytes = SHAPE.link_bytes * int(program.round_flits.sum())  # one round: all of it after the last read
    assert read_bytes < slow.cycles - written_bytes < 1.25 * read_bytes


def test_more_ports_never_take_longer(program: Program) -> None:
    cycles = [play_through_ports(program, SHAPE, MemoryPorts(masters, 4, 20)).cycles for masters in (1, 2)]
    assert cycles[1] < cycles[0]


def test_ports_that_move_nothing_are_refused() -> None:
    with pytest.raises(ArchitectureError, match="bytes_per_cycle 0 must be at least 1; give a positive number"):
        MemoryPorts(1, 0, 10)
