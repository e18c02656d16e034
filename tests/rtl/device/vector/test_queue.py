"""The vector queue in a device: passes from memory to memory, their order, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from acf.errors import RtlError
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector.model import VectorInputs, run_pass
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.registers import ERRORS
from acf.rtl.device.vector.connect import check_vector
from acf.rtl.device.vector.descriptor import VectorDescriptor
from acf.rtl.device.vector.queue import VectorQueue
from acf.rtl.tools.verilog import to_rtlil
from tests.rtl.device.programs import AXI, SIZES, VECTOR_AXI, VECTOR_SIZES
from tests.rtl.device.vector.lists import FLIT, LANES, LIST_PAGE, NO_CONSTANTS, NO_MASK, narrow, normal, run_list


def test_runs_with_gaps_are_read_added_and_written(device: DeviceSimulation) -> None:
    x, y = normal(0, 3, 10, LANES), normal(1, 3, 10, LANES)
    for run in range(3):  # x has 2 flits between runs, y none, results 5
        device.load(FLIT * (100 + 12 * run), narrow(x[run]))
    device.load(FLIT * 240, narrow(y))
    descriptor = VectorDescriptor(
        ("add", "forward", 0), vectors=10, runs=3, x=100, y=240, output_0=300, x_skip=2, output_skip=5
    )
    assert run_list(device, [descriptor]) == 0
    inputs = VectorInputs(*(bf16_values(bf16_bits(each)).reshape(-1, LANES) for each in (x, y)), NO_MASK, NO_CONSTANTS)
    expected = run_pass(descriptor.program, inputs, 30).out.view(np.float32).reshape(3, 10, LANES)
    for run in range(3):
        assert device.peek(FLIT * (300 + 15 * run), FLIT * 10) == narrow(expected[run])
    assert device.peek(FLIT * 310, FLIT * 5) == bytes(FLIT * 5)
    assert device.read_register("vectors_done") == 1
    assert device.read_register("vector_cycles") == 30


def test_an_update_reads_and_writes_its_state_in_place(device: DeviceSimulation) -> None:
    gradient, weight, momentum, constants = (
        normal(2, 9, LANES),
        normal(3, 9, LANES),
        normal(4, 9, LANES),
        normal(5, 5, LANES),
    )
    for flit, content in (
        (0, narrow(gradient)),
        (100, momentum.tobytes()),
        (200, weight.tobytes()),
        (300, constants.tobytes()),
    ):
        device.load(FLIT * flit, content)
    places = {
        "x": 0,
        "second_x": 100,
        "second_x_is_wide": True,
        "y": 200,
        "output_0": 100,
        "output_1": 200,
        "output_2": 400,
        "constants": 300,
    }
    key = ("sgd", "update", 0)
    assert run_list(device, [VectorDescriptor(key, vectors=9, y_is_wide=True, loads_constants=True, **places)]) == 0
    x = np.stack([bf16_values(bf16_bits(gradient)), momentum], axis=1).reshape(-1, LANES)
    expected = run_pass(key, VectorInputs(x, np.repeat(weight, 2, axis=0), NO_MASK, constants), 9).out.reshape(
        9, 3, LANES
    )
    assert device.peek(FLIT * 100, 2 * FLIT * 9) == expected[:, 0].tobytes()
    assert device.peek(FLIT * 200, 2 * FLIT * 9) == expected[:, 1].tobytes()
    assert device.peek(FLIT * 400, FLIT * 9) == narrow(expected[:, 2].view(np.float32))


def test_sums_go_on_over_descriptors_and_a_barrier_lets_the_next_one_read_them(device: DeviceSimulation) -> None:
    values, constants = normal(6, 16, LANES), np.abs(normal(7, 5, LANES))
    constants[0], constants[4] = -1 / 32, 1.5
    device.load(0, narrow(values))
    device.load(FLIT * 300, constants.tobytes())
    sums, statistics = ("batch_norm", "forward", 0), ("batch_norm", "statistics", 0)
    wide = {"x_is_wide": True, "y_is_wide": True, "loads_constants": True, "barrier": True}
    error = run_list(
        device,
        [
            VectorDescriptor(sums, vectors=8),
            VectorDescriptor(sums, vectors=8, x=8, keeps_sums=True, stores_sums=True, output_2=200),
            VectorDescriptor(statistics, vectors=1, x=200, y=202, output_0=400, constants=300, **wide),
        ],
    )
    assert error == 0
    inputs = VectorInputs(bf16_values(bf16_bits(values)), np.zeros_like(values), NO_MASK, NO_CONSTANTS)
    found = run_pass(sums, inputs, 16)
    assert device.peek(FLIT * 200, 4 * FLIT) == found.first_sums.tobytes() + found.second_sums.tobytes()
    x, y = (each.view(np.float32)[None] for each in (found.first_sums, found.second_sums))
    expected = run_pass(statistics, VectorInputs(x, y, NO_MASK, constants), 1)
    assert device.peek(FLIT * 400, 8 * FLIT) == expected.out.tobytes()


def test_the_mask_of_a_relu_is_where_its_output_was_positive(device: DeviceSimulation) -> None:
    gradient, output = normal(8, 4, LANES), np.maximum(normal(9, 4, LANES), 0)
    output[0, :3] = np.nan, np.inf, -0.0
    device.load(0, narrow(gradient))
    device.load(FLIT * 100, narrow(output))
    assert run_list(device, [VectorDescriptor(("relu", "backward", 0), vectors=4, y=100, output_0=200)]) == 0
    assert device.peek(FLIT * 200, FLIT * 4) == narrow(np.where(output > 0, gradient, 0))


def test_a_descriptor_waits_for_the_products_that_it_names(device: DeviceSimulation) -> None:
    with pytest.raises(AssertionError, match="still busy"):
        run_list(device, [VectorDescriptor(("relu", "forward", 0), vectors=1, after_products=1)], 150)
    assert device.read_register("vectors_done") == 0


def test_a_list_that_cannot_run_sets_its_bit(device: DeviceSimulation) -> None:
    failed = 1 << list(ERRORS).index("vector_failed")
    device.load(LIST_PAGE * 4096, bytes([255]) + bytes(63))
    device.write_register("vector_page", LIST_PAGE)
    device.write_register("vector_count", 1)
    device.run_for(100)
    assert device.read_register("error") == failed
    assert device.read_register("status") & 8 == 0
    assert run_list(device, [VectorDescriptor(("relu", "forward", 0), vectors=1)]) == 0


def test_a_maximum_of_two_rows_and_its_gradient_run_over_a_whole_image(device: DeviceSimulation) -> None:
    height, width = 4, 6
    image, dy = normal(10, height, width, LANES), normal(11, height // 2, width // 2, LANES)
    device.load(FLIT * 100, narrow(image))
    device.load(FLIT * 200, narrow(dy))
    windows = {"vectors": width // 2, "runs": height // 2}
    forward, backward = (("pool", phase, 1) for phase in ("forward", "backward"))
    rows = {"x": 100, "second_x": 100 + width, "x_skip": width, "second_x_skip": width}
    places = {"x": 200, "y": 320, "output_0": 400, "output_1": 400 + width, "output_skip": width}
    assert run_list(
        device,
        [
            VectorDescriptor(forward, output_0=300, output_1=320, **windows, **rows),
            VectorDescriptor(backward, barrier=True, **windows, **places),
        ],
    ) == 0  # fmt: skip
    pixels = bf16_values(bf16_bits(image)).reshape(height // 2, 2, width // 2, 2, LANES)
    x = pixels.transpose(0, 2, 1, 3, 4).reshape(-1, LANES)
    both = run_pass(forward, VectorInputs(x, x, NO_MASK, NO_CONSTANTS), 6).out.view(np.float32).reshape(6, 2, LANES)
    assert device.peek(FLIT * 300, FLIT * 6) == narrow(both[:, 0]) == narrow(pixels.max((1, 3)))
    assert device.peek(FLIT * 320, FLIT * 6) == narrow(both[:, 1])
    gradient = bf16_values(bf16_bits(dy)).reshape(-1, LANES)
    inputs = VectorInputs(gradient, np.ascontiguousarray(both[:, 1]), NO_MASK, NO_CONSTANTS)
    dx = run_pass(backward, inputs, 6).out.view(np.float32).reshape(height // 2, width // 2, 2, 2, LANES)
    assert device.peek(FLIT * 400, FLIT * height * width) == narrow(dx.transpose(0, 2, 1, 3, 4))


def test_a_queue_without_passes_of_rows_has_nothing_that_turns_tiles() -> None:
    assert "tile_turner" not in to_rtlil(VectorQueue(VECTOR_SIZES, VECTOR_AXI, "cnn"), "queue")


def test_descriptors_and_devices_that_cannot_be_are_refused() -> None:
    relu = VectorDescriptor(("relu", "forward", 0), vectors=1)
    for change, message in (
        ({"vectors": 0}, "0 vectors does nothing"),
        ({"x": 1 << 32}, "x 4294967296 does not fit in 32 bits"),
        ({"vectors": 65535, "runs": 65535}, "more than the unit counts"),
        ({"program": ("sgd", "update", 0), "stores_sums": True}, "sgd update 0 writes to the third output"),
        ({"program": ("gelu", "forward", 1)}, "pass gelu forward 1 is not one of"),
        ({"program": ("pool", "forward", 0)}, "pool forward 0 has windows that overlap"),
        ({"x_order": "diagonals"}, "x_order 'diagonals' is not one of rows, columns, spread"),
        ({"x_order": "columns", "x_is_wide": True}, "x is float32, and columns are made of bf16 alone"),
    ):
        with pytest.raises(RtlError, match=message):
            replace(relu, **change)
    with pytest.raises(RtlError, match="through one master, not 2"):
        check_vector(SIZES, replace(AXI, masters=2), "cnn")
    with pytest.raises(RtlError, match="link_bytes 32 is not the 16 bytes of a row"):
        check_vector(replace(SIZES, shape=replace(SIZES.shape, link_bytes=32)), AXI, "cnn")
    with pytest.raises(RtlError, match="interleave the values of their rows"):
        check_vector(replace(SIZES, shape=replace(SIZES.shape, scus_per_cluster=2)), AXI, "cnn")
    with pytest.raises(RtlError, match="programs 'rnn' is not one of cnn, transformer"):
        check_vector(SIZES, AXI, "rnn")
