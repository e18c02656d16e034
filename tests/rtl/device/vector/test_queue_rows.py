"""Passes of rows from descriptors in memory: matrices lie there as tiles, and a lane has a row of them."""

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector.model import VectorInputs, VectorOutputs, run_pass
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.registers import ERRORS
from acf.rtl.device.vector.descriptor import VectorDescriptor
from tests.rtl.device.vector.lists import FLIT, LANES, NO_MASK, narrow, normal, run_list

COLUMNS = 2
"""Tiles of a row of the matrix."""
VALUES = COLUMNS * LANES
SCALE = np.float32(0.25)
LOG2_E = np.float32(np.log2(np.e))


def constants(*values: object) -> np.ndarray:
    filled = np.zeros((5, LANES), dtype=np.float32)
    for number, each in enumerate(values):
        filled[number] = each
    return filled


def tiles(matrix: np.ndarray) -> bytes:
    """A matrix of a row for every lane as tiles, bf16."""
    return narrow(matrix.reshape(LANES, COLUMNS, LANES).swapaxes(0, 1))


def by_lane(matrix: np.ndarray) -> np.ndarray:
    """Its vectors, as a lane with a row takes them."""
    return np.ascontiguousarray(bf16_values(bf16_bits(matrix)).T)


def passed(key: tuple[str, str, int], x: np.ndarray, y: np.ndarray | None = None, *values: object) -> VectorOutputs:
    inputs = VectorInputs(x, x if y is None else y, NO_MASK, constants(*values))
    return run_pass(key, inputs, len(x))


def floats(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float32)


def test_a_softmax_and_its_gradient_run_from_descriptors_over_tiles(device: DeviceSimulation) -> None:
    x, dy = 3 * normal(20, LANES, VALUES), normal(21, LANES, VALUES)
    device.load(FLIT * 100, tiles(x))
    device.load(FLIT * 200, tiles(dy))
    for flit, values in ((300, (-SCALE * LOG2_E,)), (320, (SCALE * LOG2_E,)), (340, (1.0,)), (360, (-SCALE,))):
        device.load(FLIT * flit, constants(*values).tobytes())
    device.load(FLIT * 380, constants(SCALE).tobytes())
    rows = {"vectors": LANES, "runs": COLUMNS, "x_order": "columns"}
    number = {"vectors": 1, "x_is_wide": True, "loads_constants": True, "barrier": True}
    turns = {"turns_outputs": True, "loads_constants": True, "barrier": True}
    both = rows | {"x": 420, "y": 200, "y_order": "columns"}
    error = run_list(
        device,
        [
            VectorDescriptor(("softmax", "forward", 0), x=100, output_2=440, stores_sums=True, **rows),
            VectorDescriptor(("softmax", "shift", 0), x=440, output_0=322, constants=300, **number),
            VectorDescriptor(
                ("softmax", "forward", 1), x=100, output_0=400, output_2=444, constants=320, stores_sums=True,
                **rows, **turns,
            ),
            VectorDescriptor(("softmax", "reciprocal", 0), x=444, output_0=340, constants=340, **number),
            VectorDescriptor(("softmax", "forward", 2), x=400, output_0=420, constants=340, **rows, **turns),
            VectorDescriptor(("softmax", "backward", 0), output_2=448, stores_sums=True, barrier=True, **both),
            VectorDescriptor(("softmax", "shift", 0), x=448, output_0=382, constants=360, **number),
            VectorDescriptor(("softmax", "backward", 1), output_0=460, constants=380, **both, **turns),
        ],
        4000,
    )  # fmt: skip
    assert error == 0
    x, dy = by_lane(x), by_lane(dy)
    maxima = floats(passed(("softmax", "forward", 0), x).first_sums)
    shift = floats(passed(("softmax", "shift", 0), maxima[None], None, -SCALE * LOG2_E).out)[0]
    powers = passed(("softmax", "forward", 1), x, None, SCALE * LOG2_E, shift)
    shares = floats(passed(("softmax", "reciprocal", 0), floats(powers.first_sums)[None], None, 1.0).out)[0]
    y = floats(passed(("softmax", "forward", 2), floats(powers.out), None, shares).out)
    assert device.peek(FLIT * 444, 2 * FLIT) == powers.first_sums.tobytes()
    assert device.peek(FLIT * 420, FLIT * VALUES) == tiles(y.T)
    products = floats(passed(("softmax", "backward", 0), y, dy).first_sums)
    shift = floats(passed(("softmax", "shift", 0), products[None], None, -SCALE).out)[0]
    dx = floats(passed(("softmax", "backward", 1), y, dy, SCALE, shift).out)
    assert device.peek(FLIT * 460, FLIT * VALUES) == tiles(dx.T)
    np.testing.assert_allclose(y.sum(0), 1.0, atol=0.02)


def test_a_layer_normalisation_spreads_gamma_and_beta_and_writes_two_results(device: DeviceSimulation) -> None:
    x, gamma, beta = normal(22, LANES, VALUES), normal(23, VALUES), normal(24, VALUES)
    scale, shift = normal(25, 2, LANES)
    for flit, content in ((100, tiles(x)), (200, narrow(gamma)), (210, narrow(beta))):
        device.load(FLIT * flit, content)
    device.load(FLIT * 300, constants(scale, shift).tobytes())
    key = ("layer_norm", "forward", 1)
    descriptor = VectorDescriptor(
        key, vectors=LANES, runs=COLUMNS, x=100, x_order="columns", y=200, y_order="spread", second_x=210,
        second_x_order="spread", output_0=400, output_1=500, output_skip=3, turns_outputs=True, constants=300,
        loads_constants=True,
    )  # fmt: skip
    assert run_list(device, [descriptor]) == 0
    spread = [np.repeat(bf16_values(bf16_bits(each))[:, None], LANES, axis=1) for each in (gamma, beta)]
    pairs = np.stack([by_lane(x), spread[1]], axis=1).reshape(-1, LANES)
    inputs = VectorInputs(pairs, np.repeat(spread[0], 2, axis=0), NO_MASK, constants(scale, shift))
    results = floats(run_pass(key, inputs, VALUES).out).reshape(COLUMNS, LANES, 2, LANES)
    for flit, number in ((400, 0), (500, 1)):
        for column in range(COLUMNS):
            found = device.peek(FLIT * (flit + (LANES + 3) * column), FLIT * LANES)
            assert found == narrow(results[column, :, number].T)


def test_a_pass_that_turns_part_of_a_tile_is_given_up(device: DeviceSimulation) -> None:
    failed = 1 << list(ERRORS).index("vector_failed")
    half = VectorDescriptor(("softmax", "forward", 0), vectors=LANES // 2, x_order="columns", stores_sums=True)
    assert run_list(device, [half]) == failed
