"""Random small products and fabrics, for the tests of this folder."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from acf.lowering import BALANCERS, FabricShape
from acf.lowering.fabric_shape import TILES
from acf.sim.registry import find_architecture

Case = tuple[FabricShape, np.ndarray, np.ndarray, np.ndarray | None]
"""A fabric, both operands as small integers, and the mask of needed outputs."""


def fabric(**changes: Any) -> FabricShape:
    """The shape of acf-512 with some fields changed."""
    _, spec = find_architecture("acf-512")
    assert isinstance(spec, FabricShape)
    return replace(spec, **changes)


@st.composite
def products(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    tile, accumulator_tiles = draw(st.sampled_from(TILES)), draw(st.integers(1, 5))
    shape = fabric(
        mesh_rows=draw(st.integers(1, 4)),
        mesh_columns=draw(st.integers(1, 5)),
        scus_per_cluster=2,
        lanes=draw(st.sampled_from((1, 8))),
        tile=tile,
        accumulator_tiles=accumulator_tiles,
        parallel_slots=accumulator_tiles + 2,
        interconnect=draw(st.sampled_from(("mesh", "static"))),
        balancer=draw(st.sampled_from(tuple(BALANCERS))),
    )
    m, k, n = draw(st.integers(1, 120)), draw(st.integers(1, 120)), draw(st.integers(1, 100))
    a = rng.integers(-3, 4, (m, k)) * (rng.random((m, k)) < draw(st.sampled_from((0.05, 0.5))))
    b = rng.integers(-3, 4, (k, n)) * blocks(rng, k, n, tile, draw(st.sampled_from((0.1, 0.6))))
    return shape, a, b, blocks(rng, m, n, tile, 0.4) if draw(st.booleans()) else None


def blocks(rng: np.random.Generator, rows: int, columns: int, tile: int, density: float) -> np.ndarray:
    present = rng.random((-(-rows // tile), -(-columns // tile))) < density
    return np.kron(present, np.ones((tile, tile), dtype=bool))[:rows, :columns]
