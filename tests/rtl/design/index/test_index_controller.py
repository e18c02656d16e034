"""The index-walking controller in gates: its model's command in its model's cycle, and the host's commands."""

from dataclasses import replace

import numpy as np
import pytest

from acf.errors import RtlError
from acf.lowering.product_index import ProductIndex
from acf.rtl.design.index.controller_cycles import commands_of, controller_cycles
from acf.rtl.design.index.index_controller import IndexController, IndexSizes
from acf.rtl.design.index.indexed_program import index_program
from acf.rtl.design.index.offers import Cycle, Offer, played_against
from acf.rtl.tools.simulation import Simulation
from acf.rtl.verify.benches.memory_bench import WithMemory
from tests.rtl.design.index.indexed_products import random_indexed, random_mapped, random_split
from tests.rtl.design.index.sharing_bench import SharingBench
from tests.rtl.device.programs import SIZES, TWO_SCUS

WIDE = replace(SIZES, shape=replace(TWO_SCUS, skip="serial", accumulator_tiles=4, mesh_columns=4, parallel_slots=8))
TALL = replace(SIZES, shape=replace(TWO_SCUS, mesh_rows=4))
LINES = SIZES.shape.mesh_rows + SIZES.shape.mesh_columns
LIMITS = IndexSizes(SIZES, blocks=32, column_tiles=8, depths=6)
CASES = [
    (2, "stored", False, False),
    (1, "stored", True, False),
    (2, "longest-first", False, False),
    (2, "round-robin", True, False),
    (1, "stored", False, True),
    (2, "longest-first", True, True),
]


@pytest.mark.parametrize("sizes", [SIZES, WIDE], ids=["2 x 2", "2 x 4"])
def test_the_commands_are_those_that_a_host_would_send(sizes) -> None:
    limits = IndexSizes(sizes)
    for seed in range(8):
        groups = (1, 2, sizes.shape.mesh_columns)
        for masked in (False, True):
            indexed = random_indexed(seed, sizes, groups[seed % 3], direct=bool(seed % 2), masked=masked)
            assert commands_of(indexed.index.memory(), limits) == indexed.encoded.commands, f"seed {seed} {masked}"


@pytest.mark.parametrize("sizes", [SIZES, WIDE], ids=["2 x 2", "2 x 4"])
def test_the_commands_of_split_k_products_are_those_that_a_host_would_send(sizes) -> None:
    for seed in range(8):
        for split in (1, 2):
            product, mapping, operands = random_split(seed, sizes, split, masked=seed % 3 == 0)
            indexed = index_program(product, mapping, sizes, operands, direct=bool(seed % 2))
            for sharing in (1, 2):
                limits = IndexSizes(sizes, sharing=sharing)
                assert commands_of(indexed.index.memory(), limits) == indexed.encoded.commands, f"{seed} {split}"


def seen_in_gates(simulation: Simulation, ready: np.ndarray) -> list[Cycle]:
    """What the controller offers from the cycle after ``start`` on, until it is idle."""
    bits = (ready * (1 << np.arange(ready.shape[1]))).sum(axis=1)
    outputs = simulation.run({"start": np.arange(len(ready) + 1) == 0, "ready": np.concatenate(([0], bits))})
    cycles = int(outputs["busy"].sum())
    assert outputs["busy"][1 : cycles + 1].all()
    assert not outputs["is_refused"].any()
    words = outputs["word"].reshape(len(ready) + 1, -1)
    found: list[Cycle] = []
    for cycle in range(1, cycles + 1):
        word = sum(int(part) << 64 * place for place, part in enumerate(words[cycle]))
        found.append(
            Offer(int(outputs["line"][cycle]), word, bool(outputs["is_gap"][cycle]))
            if outputs["valid"][cycle]
            else None
        )
    return found


@pytest.mark.parametrize(
    ("group_columns", "policy", "direct", "masked"),
    CASES,
    ids=[f"{groups} {policy}{' masked' * masked}" for groups, policy, _, masked in CASES],
)
def test_gates_offer_each_command_in_the_models_cycle(
    group_columns: int, policy: str, direct: bool, masked: bool, interpret
) -> None:
    memory = random_indexed(group_columns, SIZES, group_columns, policy, direct, masked).index.memory()
    simulation = interpret(WithMemory(IndexController(LIMITS), memory.tolist()))
    rng = np.random.default_rng(0)
    for share in (1.0, 0.6):  # the second run begins where the first has left the controller
        cycles = len(list(controller_cycles(memory, LIMITS)))
        ready = rng.random((2 * cycles + 20, LINES)) < share
        assert seen_in_gates(simulation, ready) == played_against([controller_cycles(memory, LIMITS)], ready)[0]


@pytest.mark.parametrize("split_k", [False, True], ids=["output-stationary", "split-K"])
def test_a_controller_whose_clock_stops_without_a_product_walks_as_one_whose_clock_never_stops(
    split_k: bool, interpret
) -> None:
    sizes = replace(SIZES, shape=replace(SIZES.shape, clock_gating="units"))
    limits = replace(LIMITS, fabric=sizes)
    mapped = random_split(0, SIZES, 1) if split_k else random_mapped(1, SIZES, 1)
    memory = index_program(*mapped[:2], SIZES, mapped[2]).index.memory()
    simulation = interpret(WithMemory(IndexController(limits), memory.tolist()))
    rng = np.random.default_rng(0)
    for share in (1.0, 0.6):
        ready = rng.random((2 * len(list(controller_cycles(memory, LIMITS))) + 20, LINES)) < share
        assert seen_in_gates(simulation, ready) == played_against([controller_cycles(memory, LIMITS)], ready)[0]


@pytest.mark.parametrize(
    ("sizes", "group_columns", "masked"),
    [(SIZES, 1, True), (SIZES, 1, False), (WIDE, 2, False), (WIDE, 4, False), (TALL, 2, False)],
    ids=["masked", "2 groups", "2 groups of 2", "one group", "2 rows each"],
)
def test_controllers_that_share_a_product_make_the_commands_of_their_own_lines(
    sizes, group_columns: int, masked: bool, interpret
) -> None:
    limits = replace(LIMITS, fabric=sizes, sharing=2)
    indexed = random_indexed(0, sizes, group_columns, masked=masked)
    memory = indexed.index.memory()
    assert commands_of(memory, limits) == indexed.encoded.commands
    alone = len(list(controller_cycles(memory, replace(limits, sharing=1))))
    lines = sizes.shape.mesh_rows + sizes.shape.mesh_columns
    ready = np.random.default_rng(0).random((2 * alone, lines)) < 0.6
    for number in range(2):
        modelled = list(controller_cycles(memory, limits, number))
        assert len(modelled) < alone
        assert {offer.line % 2 for offer in modelled if offer} == {number}
        simulation = interpret(WithMemory(IndexController(limits, number), memory.tolist()))
        assert seen_in_gates(simulation, ready) == played_against([iter(modelled)], ready)[0]


def test_more_controllers_than_lines_are_refused() -> None:
    with pytest.raises(RtlError, match="sharing 3 of a product's controllers is not in 1 to 2"):
        replace(LIMITS, sharing=3)


def test_gates_read_two_words_where_a_mesh_has_more_than_32_rows(interpret) -> None:
    sizes = replace(SIZES, shape=replace(TWO_SCUS, mesh_rows=34))
    limits = IndexSizes(sizes, blocks=128, column_tiles=16, depths=16)
    product, mapping, operands = random_mapped(0, sizes, 1, most=10)
    indexed = index_program(product, mapping, sizes, operands)
    memory = indexed.index.memory()
    assert any(line and number >= 32 for number, line in enumerate(indexed.encoded.commands[:34]))
    modelled = list(controller_cycles(memory, limits))
    ready = np.ones((len(modelled) + 20, 34 + sizes.shape.mesh_columns), dtype=bool)
    simulation = interpret(WithMemory(IndexController(limits), memory.tolist()))
    assert seen_in_gates(simulation, ready) == played_against([iter(modelled)], ready)[0]


SPLIT_K_CASES = [
    (SIZES, 0, 1, {"direct": True}, 1),
    (SIZES, 6, 2, {"direct": False}, 1),
    (WIDE, 1, 2, {"direct": False}, 2),
    (WIDE, 3, 1, {"direct": True}, 2),
    (TALL, 0, 2, {"direct": True}, 2),
]


@pytest.mark.parametrize(("sizes", "seed", "split", "stored", "sharing"), SPLIT_K_CASES)
def test_gates_offer_each_command_of_a_split_k_product_in_the_models_cycle(
    sizes, seed: int, split: int, stored: dict[str, bool], sharing: int, interpret
) -> None:
    product, mapping, operands = random_split(seed, sizes, split, masked=seed == 3)
    memory = index_program(product, mapping, sizes, operands, **stored).index.memory()
    limits = replace(LIMITS, fabric=sizes, sharing=sharing)
    rng = np.random.default_rng(0)
    simulation = interpret(SharingBench(limits, memory.tolist()))
    for share in (1.0, 0.6):
        walks = [list(controller_cycles(memory, limits, number)) for number in range(sharing)]
        cycles = 2 * sum(map(len, walks)) + 20
        ready = rng.random((cycles, sizes.shape.mesh_rows + sizes.shape.mesh_columns)) < share
        modelled = played_against([iter(walk) for walk in walks], ready)
        assert seen_of_all(simulation, ready, limits) == [_padded(each, modelled) for each in modelled]


def _padded(seen: list[Cycle], of_all: list[list[Cycle]]) -> list[Cycle]:
    """As long as the longest: a controller that is done offers nothing."""
    return seen + [None] * (max(map(len, of_all)) - len(seen))


def seen_of_all(simulation: Simulation, ready: np.ndarray, limits: IndexSizes) -> list[list[Cycle]]:
    """What each of the controllers offers from the cycle after ``start`` on, until all are idle."""
    bits = (ready * (1 << np.arange(ready.shape[1]))).sum(axis=1)
    outputs = simulation.run({"start": np.arange(len(ready) + 1) == 0, "ready": np.concatenate(([0], bits))})
    cycles = int(outputs["busy"].sum())
    assert outputs["busy"][1 : cycles + 1].all()
    words = [outputs[f"word_{number}"].reshape(len(ready) + 1, -1) for number in range(limits.sharing)]
    found: list[list[Cycle]] = [[None] * cycles for _ in range(limits.sharing)]
    for cycle in range(cycles):
        for line in range(ready.shape[1]):
            if int(outputs["valid"][cycle + 1]) >> line & 1:
                number = limits.share_of(line)
                word = sum(int(part) << 64 * place for place, part in enumerate(words[number][cycle + 1]))
                found[number][cycle] = Offer(line, word, bool(int(outputs["gaps"][cycle + 1]) >> line & 1))
    return found


def refused(index: ProductIndex, interpret, **changes) -> bool:
    descriptor = replace(index.descriptor, **changes)
    memory = [*descriptor.words(), *index.words.tolist()]
    seen = interpret(WithMemory(IndexController(LIMITS), memory)).run({"start": np.arange(40) == 0})
    assert seen["is_refused"][-1] == (not seen["busy"][-1])
    return bool(seen["is_refused"][-1])


def test_descriptors_beyond_the_controller_are_refused(interpret) -> None:
    index = random_indexed(0, SIZES, 2).index
    assert not refused(index, interpret)
    for changes in ({"blocks": 33}, {"column_tiles": 9}, {"split_k": True, "rows": 8 * 8 + 1}):
        assert refused(index, interpret, **changes), changes


def test_a_controller_without_room_is_not_built() -> None:
    with pytest.raises(RtlError, match="depths 1 of an index controller is less than 2"):
        IndexSizes(SIZES, depths=1)
