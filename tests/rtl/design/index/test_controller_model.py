"""A controller derives the packets that lowering plans from the descriptor and the index alone."""

import numpy as np
import pytest
from hypothesis import given, settings

from acf.lowering import PARALLEL, Gemm, Program
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.packing import lower_product
from acf.lowering.pipeline import lower_stages
from acf.lowering.product_index import ProductIndex, build_index
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import tile_product
from acf.rtl.design.index.controller_model import controller_packets
from acf.rtl.design.index.controller_packet import ControllerPacket, Mesh
from tests.lowering.random_products import Case, fabric, products


def derived(index: ProductIndex, shape: FabricShape) -> list[list[ControllerPacket]]:
    return controller_packets(index.memory(), Mesh(shape.mesh_rows, shape.mesh_columns))


def planned(program: Program, index: ProductIndex) -> list[list[ControllerPacket]]:
    """The packets of a program by line, with the addresses that their tiles have in memory."""
    lines = []
    rows = program.rows.first.size - 1
    for stream, first_line in ((program.rows, 0), (program.columns, rows)):
        for line in range(stream.first.size - 1):
            packets = []
            for packet in range(stream.first[line], stream.first[line + 1]):
                kind, tile, k_tile = (int(each[packet]) for each in (stream.kind, stream.row_tile, stream.k_tile))
                addresses = index.parallel_address if kind == PARALLEL else index.serial_address
                met = () if kind == PARALLEL else tuple(stream.parallel_tiles[packet].tolist())
                numbers = (int(stream.k_step[packet]), int(stream.round[packet]), tile, k_tile)
                destinations = int(stream.destinations[packet])
                where = (int(stream.flits[packet]), addresses[tile, k_tile], destinations, met)
                packets.append(ControllerPacket(first_line + line, kind, *numbers, *where))
            lines.append(packets)
    return lines


def without_packing(lines: list[list[ControllerPacket]]) -> list[list[ControllerPacket]]:
    """The same with the number of flits in place of the size byte, which a program does not have."""
    return [[ControllerPacket(**(vars(each) | {"size": each.flits})) for each in line] for line in lines]


@settings(max_examples=40, deadline=None)
@given(products())
def test_the_packets_that_lowering_plans_are_derived_from_descriptor_and_index(case: Case) -> None:
    shape, a, b, needed = case
    lowered = lower_stages(Gemm(a != 0, b != 0, needed), shape)
    for direct in (False, True):
        index = build_index(lowered.product, lowered.mapping, shape, direct)
        assert without_packing(derived(index, shape)) == planned(lowered.program, index)


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_the_packets_of_a_split_reduction_are_derived_too(split: int, masked: bool) -> None:
    shape = fabric(mesh_rows=2, mesh_columns=4, tile=8, accumulator_tiles=2, parallel_slots=4)
    packets = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows, depth, columns = (8 * int(count) for count in rng.integers(1, 6, 3))
        b = np.kron(rng.random((depth // 8, columns // 8)) < 0.5, np.ones((8, 8), dtype=bool))
        needed = np.kron(rng.random((rows // 8, columns // 8)) < 0.5, np.ones((8, 8), dtype=bool)) if masked else None
        product = tile_product(Gemm(rng.random((rows, depth)) < 0.3, b, needed), shape, swapped=False)
        mapping = SplitKMapping.balanced(product, shape, split)
        for direct in (False, True):
            index = build_index(product, mapping, shape, direct)
            lines = planned(lower_product(product, shape, mapping), index)
            assert without_packing(derived(index, shape)) == lines
            packets += sum(len(line) for line in lines)
    assert packets > 50


@pytest.mark.parametrize("policy", ["round-robin", "longest-first"])
def test_the_route_planner_shares_output_columns_as_the_balancer_does(policy: str) -> None:
    rng = np.random.default_rng(3)
    shape = fabric(mesh_rows=2, mesh_columns=3, tile=8, accumulator_tiles=2, parallel_slots=4, balancer=policy)
    a = rng.random((150, 40)) < 0.5
    blocks = rng.random((5, 11)) < 0.4
    blocks[:, 4] = False
    product = tile_product(Gemm(a, np.kron(blocks, np.ones((8, 8), dtype=bool))), shape)
    mapping = OutputStationaryMapping.balanced(product, shape, group_columns=3)
    stored = build_index(product, mapping, shape)
    planning = build_index(product, mapping, shape, policy=policy)
    assert planning.words.size == stored.words.size - 11
    assert derived(planning, shape) == derived(stored, shape)
    assert without_packing(derived(planning, shape)) == planned(lower_product(product, shape, mapping), planning)


def test_a_word_of_the_index_that_is_wrong_changes_the_packets() -> None:
    rng = np.random.default_rng(0)
    shape = fabric(mesh_rows=2, mesh_columns=2, tile=8, accumulator_tiles=2, parallel_slots=4)
    lowered = lower_stages(Gemm(rng.random((30, 24)) < 0.5, rng.random((24, 24)) < 0.5), shape)
    index = build_index(lowered.product, lowered.mapping, shape)
    before = derived(index, shape)
    index.words[index.descriptor.entries_at] ^= 1 << 16
    assert derived(index, shape) != before
