"""Passes on a vector unit in gates, and inputs for them."""

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.vector.model import VectorInputs, VectorOutputs
from acf.rtl.design.vector.operation import CONSTANTS
from acf.rtl.design.vector.registry import PROGRAM_SETS
from acf.rtl.tools.port_arrays import join_bits, split_bits
from acf.rtl.tools.simulation import Simulation

LANES = 2
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38], dtype=np.float32)


def inputs_of(key: tuple[str, str, int], vectors: int, seed: int) -> VectorInputs:
    """Random inputs, bf16 but for the optimizer's state, with a few special values among them."""
    rng = np.random.default_rng(seed)
    takes = vectors * sum(bool(each.takes) for each in PROGRAM_SETS["transformer"].programs[key])
    x, y = rng.standard_normal((2, takes, LANES)).astype(np.float32)
    x = np.where(rng.random(x.shape) < 0.2, rng.choice(SPECIAL, x.shape), x)
    if key[0] != "sgd":
        x, y = (bf16_values(bf16_bits(each)) for each in (x, y))
    constants = rng.standard_normal((CONSTANTS, LANES)).astype(np.float32)
    return VectorInputs(x, y, rng.random((takes, LANES)) < 0.5, constants)


def words(values: np.ndarray) -> np.ndarray:
    return join_bits(np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64), 32)


def run_unit(unit: Simulation, key: tuple[str, str, int], inputs: VectorInputs, vectors: int, seed: int | None = None):
    """The pass on the unit: its outputs, and how many cycles it was busy; with ``seed``, buses are ready at random."""
    unit.restart()
    unit.run({"load_constant": 1, "constant": np.arange(CONSTANTS), "x": words(inputs.constants)})
    unit.run({"start": [1], "program": [PROGRAM_SETS["transformer"].number(*key)], "vectors": [vectors]})
    rng, x, y, taken = np.random.default_rng(seed), words(inputs.x), words(inputs.y), 0
    out, masks, busy, works = [], [], 0, 0
    mask = join_bits(inputs.mask.astype(np.uint64), 1)
    for _ in range(60 * vectors):
        ready, valid = (1, 1) if seed is None else rng.integers(0, 2, 2).tolist()
        valid = int(valid and taken < len(x))
        now = min(taken, len(x) - 1)
        driven = {"x": x[now : now + 1], "y": y[now : now + 1], "in_mask": mask[now : now + 1]}
        seen = unit.run(driven | {"in_valid": [valid], "out_ready": [ready]})
        taken += int(seen["in_ready"][0])
        busy, works = busy + int(seen["busy"][0]), works + int(seen["works"][0])
        if ready and seen["out_valid"][0]:
            out.append(split_bits(seen["out"], 32, LANES)[0])
            masks.append(split_bits(seen["out_mask"], 1, LANES)[0])
        if not seen["busy"][0] and not seen["out_valid"][0]:
            break
    sums = [split_bits(seen[name], 32, LANES)[0] for name in ("first_sums", "second_sums")]
    return VectorOutputs(np.array(out).reshape(-1, LANES), np.array(masks).reshape(-1, LANES), *sums, works), busy


def assert_equal(found: VectorOutputs, expected: VectorOutputs, compares: bool) -> None:
    np.testing.assert_array_equal(found.out, expected.out)
    np.testing.assert_array_equal(found.first_sums, expected.first_sums)
    np.testing.assert_array_equal(found.second_sums, expected.second_sums)
    if compares:
        np.testing.assert_array_equal(found.mask, expected.mask)
