"""Where everything of a step lies in memory, and its vector descriptors in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.image import MemoryImage
from acf.rtl.device.host.placed_product import PlacedMatrix, encode_dense, lay_out_placed, page_of, placed_results
from acf.rtl.device.step.layer import StepState
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES, VectorDescriptor

Key = tuple[str, str, int]
Tile = tuple[int, int]

INPUT_CONSTANTS, CHANNEL_CONSTANTS = 5, 8
"""Vectors of a channel group: -1/2n, -eps/2, gamma, beta, 1.5; then -1/n, scale, shift, 1/deviation, -mean/deviation
and three for the backward pass."""

_SCALE, _INVERSE, _GRADIENTS = 1, 3, 5  # where constants of the passes begin among the latter


@dataclass(frozen=True)
class Region:
    """``count`` pieces of ``flits`` flits each, from flit ``base`` on."""

    base: int
    flits: int
    count: int

    def __getitem__(self, number: int) -> int:
        return self.base + number * self.flits

    @property
    def end(self) -> int:
        """The flit behind the last."""
        return self[self.count]


@dataclass(frozen=True, eq=False)
class StepPlan:
    """The regions of a step by name, its two products, and its descriptors.

    ``blocks``: (row, column) of every weight block, in the order in which their gradients lie in memory. Activations
    have the tile (row, column) at place ``column * row tiles + row``, so that a channel group is contiguous.
    ``order``: for every column of tiles, its row tiles in the order of summing. ``first_descriptors``: those before the
    weight gradient, which waits for them.
    """

    sizes: FabricSizes
    regions: dict[str, Region]
    forward: EncodedProgram
    weight_gradient: EncodedProgram
    images: tuple[MemoryImage, MemoryImage]
    blocks: list[Tile]
    order: list[list[int]]
    descriptors: list[VectorDescriptor]
    first_descriptors: int
    end: int

    @property
    def list_page(self) -> int:
        """The page where the descriptors lie."""
        return self.regions["descriptors"].base * self.sizes.shape.link_bytes // PAGE_BYTES


def plan_step(state: StepState, sizes: FabricSizes, axi: AxiSpec) -> StepPlan:
    """Lay out a step from byte 0 on."""
    return _Planner(state, sizes, axi).plan()


class _Planner:
    def __init__(self, state: StepState, sizes: FabricSizes, axi: AxiSpec) -> None:
        self.sizes, self.axi, self.tile, self.link = sizes, axi, sizes.shape.tile, sizes.shape.link_bytes
        self.rows, self.inputs = state.x.shape[0] // self.tile, state.x.shape[1] // self.tile
        self.columns, self.kept = state.target.shape[1] // self.tile, state.kept
        self.regions: dict[str, Region] = {}
        self.flit = 0

    def plan(self) -> StepPlan:
        present = np.kron(self.kept, np.ones((self.tile, self.tile), dtype=bool))
        full = [np.ones((rows * self.tile, columns * self.tile), dtype=bool) for rows, columns in self._shapes()]
        forward = encode_dense(full[0], present, None, self.sizes)
        weight_gradient = encode_dense(full[0].T.copy(), full[1], present, self.sizes)
        self._place_regions()
        x = PlacedMatrix({(row, k): self.regions["x"][row * self.inputs + k] for row, k in self._tiles(0)})
        dz = PlacedMatrix({tile: self._activation("dz", tile) for tile in self._tiles(1)})
        base = self.flit * self.link
        second = lay_out_placed(weight_gradient, x.T, dz, self.axi, base)
        gradients = placed_results(weight_gradient, second)
        blocks = [tile for tile in gradients if self.kept[tile]]
        weight = PlacedMatrix({tile: self.regions["weight"][number] for number, tile in enumerate(blocks)})
        first = lay_out_placed(forward, x, weight, self.axi, page_of(second.end))
        self.flit = page_of(first.end) // self.link
        results = placed_results(forward, first)
        runs = [
            _runs([(at, row) for (row, at_column), at in results.items() if at_column == column], self.tile)
            for column in range(self.columns)
        ]
        before = list(self._before_gradient(runs))
        after = [*self._update_channels(), *self._update_weights([gradients[tile] for tile in blocks])]
        descriptors = before + after
        self._region("descriptors", DESCRIPTOR_BYTES // self.link, len(descriptors))
        order = [[row for run in column for row in run.rows] for column in runs]
        return StepPlan(
            sizes=self.sizes,
            regions=self.regions,
            forward=forward,
            weight_gradient=weight_gradient,
            images=(first, second),
            blocks=blocks,
            order=order,
            descriptors=descriptors,
            first_descriptors=len(before),
            end=self.flit * self.link,
        )

    def _shapes(self) -> list[Tile]:
        """Row and column tiles of the input and of the output."""
        return [(self.rows, self.inputs), (self.rows, self.columns)]

    def _tiles(self, which: int) -> list[Tile]:
        rows, columns = self._shapes()[which]
        return [(row, column) for row in range(rows) for column in range(columns)]

    def _region(self, name: str, flits: int, count: int) -> None:
        self.regions[name] = Region(self.flit, flits, count)
        self.flit = page_of(self.regions[name].end * self.link) // self.link

    def _place_regions(self) -> None:
        tile, blocks, outputs = self.tile, int(self.kept.sum()), self.rows * self.columns
        self._region("x", tile, self.rows * self.inputs)
        self._region("weight", tile, blocks)
        for name in ("master", "momentum"):
            self._region(name, 2 * tile, blocks)
        for name in ("target", "normalised", "y", "dy", "masked", "dz"):
            self._region(name, tile, outputs)
        self._region("input_constants", 2 * INPUT_CONSTANTS, self.columns)
        self._region("channel_constants", 2 * CHANNEL_CONSTANTS, self.columns)
        self._region("channel_momentum", 4, self.columns)
        for name in ("sums", "gradient_sums"):
            self._region(name, 4, self.columns)
        self._region("update_constants", 10, 1)
        self._region("discarded", 1, 1)

    def _activation(self, name: str, tile: Tile) -> int:
        return self.regions[name][tile[1] * self.rows + tile[0]]

    # The descriptors, in order.
    def _before_gradient(self, runs: "list[list[_Run]]") -> Iterator[VectorDescriptor]:
        """Batch normalisation, ReLU, the loss's gradient, and back to the product's output."""
        kind = "batch_norm"
        yield from self._sums((kind, "forward", 0), runs, "sums", is_backward=False)
        yield from self._per_channel((kind, "statistics", 0), "sums", self.regions["input_constants"], _SCALE)
        yield from self._elementwise((kind, "forward", 1), runs, _SCALE, "normalised")
        yield self._whole(("relu", "forward", 0), "normalised", None, "y")
        yield self._whole(("add", "forward", 0), "y", "target", "dy")
        yield self._whole(("relu", "backward", 0), "dy", "y", "masked")
        yield from self._sums((kind, "backward", 0), runs, "gradient_sums", is_backward=True)
        yield from self._per_channel(
            (kind, "gradients", 0), "gradient_sums", self.regions["channel_constants"], _GRADIENTS
        )
        yield from self._elementwise((kind, "backward", 1), runs, _INVERSE, "dz")

    def _sums(self, key: Key, runs: "list[list[_Run]]", to: str, is_backward: bool) -> Iterator[VectorDescriptor]:
        """Both sums of every channel group; those of the backward pass need constants, and earlier results."""
        for column, own in enumerate(runs):
            for number, run in enumerate(own):
                yield VectorDescriptor(
                    key,
                    **self._inputs(run, column, _INVERSE) | {"loads_constants": is_backward},
                    after_products=1,
                    keeps_sums=number > 0,
                    stores_sums=run is own[-1],
                    output_0=self.regions[to][column],
                    barrier=is_backward and column == number == 0,
                )

    def _elementwise(self, key: Key, runs: "list[list[_Run]]", constants: int, to: str) -> Iterator[VectorDescriptor]:
        for column, own in enumerate(runs):
            for number, run in enumerate(own):
                yield VectorDescriptor(
                    key,
                    **self._inputs(run, column, constants),
                    output_0=self._activation(to, (run.rows[0], column)),
                    output_skip=run.row_step * self.tile - self.tile,
                    barrier=column == number == 0,
                )

    def _inputs(self, run: "_Run", column: int, constants: int) -> dict[str, Any]:
        """Tiles of the product's output, and those of the gradient behind them, where a pass reads it."""
        return {
            "vectors": self.tile,
            "runs": len(run.rows),
            "x": run.flit,
            "x_skip": run.step - self.tile,
            "y": self._activation("masked", (run.rows[0], column)),
            "y_skip": run.row_step * self.tile - self.tile,
            "constants": self.regions["channel_constants"][column] + 2 * constants,
            "loads_constants": True,
        }

    def _per_channel(self, key: Key, sums: str, constants: Region, to: int) -> Iterator[VectorDescriptor]:
        """Constants of the next passes out of sums."""
        for column in range(self.columns):
            yield VectorDescriptor(
                key,
                vectors=1,
                x=self.regions[sums][column],
                y=self.regions[sums][column] + 2,
                x_is_wide=True,
                y_is_wide=True,
                output_0=self.regions["channel_constants"][column] + 2 * to,
                constants=constants[column],
                loads_constants=True,
                barrier=column == 0,
            )

    def _whole(self, key: Key, x: str, y: str | None, to: str) -> VectorDescriptor:
        """A pass over all activations."""
        count = self.regions[x].count
        return VectorDescriptor(
            key,
            vectors=self.tile,
            runs=count,
            x=self.regions[x].base,
            y=0 if y is None else self.regions[y].base,
            output_0=self.regions[to].base,
            barrier=True,
        )

    def _update_channels(self) -> Iterator[VectorDescriptor]:
        """Gamma and beta: their gradients are the second and the first sum of the backward pass."""
        for column in range(self.columns):
            for number, sums in ((0, 2), (1, 0)):
                value = self.regions["input_constants"][column] + 2 * (2 + number)
                state = self.regions["channel_momentum"][column] + 2 * number
                yield self._update(
                    value,
                    state,
                    self.regions["gradient_sums"][column] + sums,
                    self.regions["discarded"].base,
                    x_is_wide=True,
                )

    def _update_weights(self, gradients: list[int]) -> Iterator[VectorDescriptor]:
        """Runs of blocks whose gradients are equally far apart."""
        first = 0
        for run in _runs([(at, number) for number, at in enumerate(gradients)], self.tile):
            yield self._update(
                self.regions["master"][first],
                self.regions["momentum"][first],
                run.flit,
                self.regions["weight"][first],
                vectors=self.tile,
                runs=len(run.rows),
                x_skip=run.step - self.tile,
                after_products=2,
            )
            first += len(run.rows)

    def _update(self, value: int, state: int, gradient: int, operand: int, **others: Any) -> VectorDescriptor:
        fields = {"vectors": 1} | others
        return VectorDescriptor(
            ("sgd", "update", 0),
            x=gradient,
            second_x=state,
            y=value,
            y_is_wide=True,
            output_0=state,
            output_1=value,
            output_2=operand,
            constants=self.regions["update_constants"].base,
            loads_constants=True,
            **fields,
        )


@dataclass(frozen=True)
class _Run:
    """Tiles at equal distances: the first at ``flit``, ``step`` flits apart; their ``rows`` are ``row_step`` apart."""

    flit: int
    step: int
    rows: Sequence[int]
    row_step: int


def _runs(places: list[tuple[int, int]], tile: int) -> list[_Run]:
    """(flit, row) of tiles, in order of flits, as few runs as a greedy walk finds."""
    runs: list[_Run] = []
    for flit, row in places:
        last = runs[-1] if runs else None
        if last is not None and len(last.rows) == 1 and row > last.rows[0] and flit >= last.flit + tile:
            runs[-1] = _Run(last.flit, flit - last.flit, [last.rows[0], row], row - last.rows[0])
        elif (
            last is not None
            and len(last.rows) > 1
            and (flit, row)
            == (
                last.flit + last.step * len(last.rows),
                last.rows[-1] + last.row_step,
            )
        ):
            runs[-1] = _Run(last.flit, last.step, [*last.rows, row], last.row_step)
        else:
            runs.append(_Run(flit, tile, [row], 1))
    return runs
