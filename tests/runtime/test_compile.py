"""The words of a program determine how a fabric runs it."""

from dataclasses import replace

import numpy as np
import pytest

from acf import runtime
from acf.lowering.mapping import choose_mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.pipeline import lower_stages
from acf.lowering.split_k import SplitKMapping
from acf.rtl.design.fabric.shapes import SMALL_SHAPE
from acf.runtime.compile import bind, compile_product, lowered, read_mapping
from acf.runtime.matrices import full_operands, split_product
from acf.trace.op import PHASES
from tests.runtime.products import SPARSE, mapped_program, random_operands, run

WIDE = runtime.WeightBlocks.from_mask(np.arange(36).reshape(6, 6) % 4 > 0, (8, 8))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("rows", [3, 70])
def test_a_mapping_is_read_back_from_the_index(phase: str, rows: int) -> None:
    product = runtime.Product(phase=phase, rows=rows, weight=WIDE)
    (fabric_product,) = compile_product(product, SMALL_SHAPE).fabric_products
    (matrices,) = split_product(product, full_operands(product))
    chosen = choose_mapping(lower_stages(matrices.gemm(), SMALL_SHAPE).product, SMALL_SHAPE)
    found = read_mapping(fabric_product, SMALL_SHAPE)
    assert type(found) is type(chosen)
    np.testing.assert_array_equal(found.column_of, chosen.column_of)
    np.testing.assert_array_equal(found.round_of, chosen.round_of)
    if isinstance(chosen, SplitKMapping) and isinstance(found, SplitKMapping):
        np.testing.assert_array_equal(found.output_columns, chosen.output_columns)
        assert found.split == chosen.split


def test_both_mappings_occur_above() -> None:
    kinds = {
        compile_product(runtime.Product(phase=phase, rows=rows, weight=WIDE), SMALL_SHAPE)
        .fabric_products[0]
        .descriptor.split_k
        for phase in PHASES
        for rows in (3, 70)
    }
    assert kinds == {True, False}


def in_columns(product: runtime.Product) -> runtime.Program:
    """An output-stationary program whose output columns are shared by all mesh columns."""
    columns = SMALL_SHAPE.mesh_columns
    return mapped_program(
        product, SMALL_SHAPE, lambda tiled: OutputStationaryMapping.balanced(tiled, SMALL_SHAPE, columns)
    )


def test_owners_in_the_index_decide_which_cluster_works() -> None:
    program = in_columns(runtime.Product(phase="forward", rows=40, weight=WIDE))
    (each,) = program.fabric_products
    words = each.index.copy()
    words[each.descriptor.owners_at : each.descriptor.orders_at] &= np.uint32(0xFFFFFF00)  # all to mesh column 0
    one_column = replace(program, fabric_products=(replace(each, index=words),), cache={})
    seconds = []
    for chosen in (program, one_column):
        device = runtime.Device("sim", SMALL_SHAPE)
        run(device, chosen, random_operands(program))
        seconds.append(device.timeline.usage().busy_s["compute"])
    assert seconds[1] > 1.3 * seconds[0]


def test_zeros_of_the_operands_change_tiles_but_no_owners() -> None:
    program = in_columns(runtime.Product(phase="forward", rows=9, weight=WIDE))
    assert program.product is not None
    x, blocks = random_operands(program)
    x[:, :8] = 0
    (matrices,) = split_product(program.product, (x, blocks))
    bound = bind(program, SMALL_SHAPE, 0, matrices)
    assert bound.product.serial.tile_nonzeros[:, 0].sum() == 0
    assert isinstance(bound.mapping, OutputStationaryMapping)
    owners = read_mapping(program.fabric_products[0], SMALL_SHAPE).column_of
    np.testing.assert_array_equal(bound.mapping.column_of, owners)


def test_a_portable_program_is_lowered_once() -> None:
    program = runtime.Program(runtime.Product(phase="forward", rows=9, weight=SPARSE))
    first = lowered(program, SMALL_SHAPE)
    assert first.fabric_products
    assert lowered(program, SMALL_SHAPE) is first
    assert lowered(first, SMALL_SHAPE) is first


def test_a_program_for_another_fabric_is_refused_with_the_remedy() -> None:
    program = runtime.Device("sim", "acf-512").compile(runtime.Product(phase="forward", rows=9, weight=SPARSE))
    device = runtime.Device("sim", SMALL_SHAPE)
    buffers = [device.malloc(argument.nbytes) for argument in program.arguments]
    with pytest.raises(runtime.NoBinaryForDeviceError, match=r"device\.compile\(program\.product\)"):
        runtime.launch(program, buffers)
