"""Progress of a simulation: told before every operation, in order, below 1."""

import numpy as np

import acf


def test_every_operation_is_told_with_the_share_that_is_done() -> None:
    ones = np.ones((8, 8), dtype=bool)
    products = [acf.Matmul(name, "forward", ones, ones) for name in ("fc1", "fc2")]
    told: list[tuple[str, float]] = []
    trace = acf.Trace.from_matmuls(products, label="two")
    result = acf.simulate(trace, "tensorcore", on_progress=lambda what, share: told.append((what, share)))
    assert told == [("fc1 forward", 0.0), ("fc2 forward", 0.5)]
    assert result == acf.simulate(trace, "tensorcore")
