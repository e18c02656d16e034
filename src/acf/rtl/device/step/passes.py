"""The vector descriptors of a step, in order: passes over tiles wherever products have left them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from acf.rtl.device.vector.descriptor import VectorDescriptor

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


@dataclass(frozen=True)
class Run:
    """Tiles at equal distances: the first at ``flit``, ``step`` flits apart; their ``rows`` are ``row_step`` apart.

    ``tile_flits``: flits of a tile; of float32 values it has twice those of bf16.
    """

    flit: int
    step: int
    rows: Sequence[int]
    row_step: int
    tile_flits: int


def runs_of(places: list[tuple[int, int]], tile_flits: int) -> list[Run]:
    """(flit, row) of tiles, in order of flits, as few runs as a greedy walk finds."""
    runs: list[Run] = []
    for flit, row in places:
        last = runs[-1] if runs else None
        if last is not None and len(last.rows) == 1 and row > last.rows[0] and flit >= last.flit + tile_flits:
            runs[-1] = Run(last.flit, flit - last.flit, [last.rows[0], row], row - last.rows[0], tile_flits)
        elif (
            last is not None
            and len(last.rows) > 1
            and (flit, row)
            == (
                last.flit + last.step * len(last.rows),
                last.rows[-1] + last.row_step,
            )
        ):
            runs[-1] = Run(last.flit, last.step, [*last.rows, row], last.row_step, tile_flits)
        else:
            runs.append(Run(flit, tile_flits, [row], 1, tile_flits))
    return runs


class Passes:
    """Makes the descriptors of a step with ``rows x columns`` tiles of outputs; ``regions`` tell where all else lies.

    Activations have the tile (row, column) at place ``column * rows + row``, so that a channel group is contiguous.
    """

    def __init__(self, regions: dict[str, Region], tile: int, rows: int, columns: int) -> None:
        self.regions, self.tile, self.rows, self.columns = regions, tile, rows, columns

    def activation(self, name: str, tile: Tile) -> int:
        """The first flit of a tile of activations."""
        return self.regions[name][tile[1] * self.rows + tile[0]]

    def before_gradient(self, runs: list[list[Run]]) -> Iterator[VectorDescriptor]:
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

    def _sums(self, key: Key, runs: list[list[Run]], to: str, is_backward: bool) -> Iterator[VectorDescriptor]:
        """Both sums of every channel group; those of the backward pass need constants, and earlier results."""
        for column, own in enumerate(runs):
            for number, run in enumerate(own):
                yield VectorDescriptor(
                    key,
                    **self._inputs(run, column, _INVERSE) | {"loads_constants": is_backward},
                    after_products=1,
                    keeps_sums=number > 0,
                    stores_sums=run is own[-1],
                    output_2=self.regions[to][column],
                    barrier=is_backward and column == number == 0,
                )

    def _elementwise(self, key: Key, runs: list[list[Run]], constants: int, to: str) -> Iterator[VectorDescriptor]:
        for column, own in enumerate(runs):
            for number, run in enumerate(own):
                yield VectorDescriptor(
                    key,
                    **self._inputs(run, column, constants),
                    output_0=self.activation(to, (run.rows[0], column)),
                    output_skip=run.row_step * self.tile - self.tile,
                    barrier=column == number == 0,
                )

    def _inputs(self, run: Run, column: int, constants: int) -> dict[str, Any]:
        """Tiles of the product's output, and those of the gradient behind them, where a pass reads it."""
        return {
            "vectors": self.tile,
            "runs": len(run.rows),
            "x": run.flit,
            "x_skip": run.step - run.tile_flits,
            "x_is_wide": run.tile_flits > self.tile,
            "y": self.activation("masked", (run.rows[0], column)),
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

    def update_channels(self) -> Iterator[VectorDescriptor]:
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

    def update_weights(self, gradients: list[int], tile_flits: int, products: int) -> Iterator[VectorDescriptor]:
        """Runs of blocks whose gradients are equally far apart, once so many products are done.

        ``tile_flits``: flits of a block's gradient.
        """
        first = 0
        for run in runs_of([(at, number) for number, at in enumerate(gradients)], tile_flits):
            yield self._update(
                self.regions["master"][first],
                self.regions["momentum"][first],
                run.flit,
                self.regions["weight"][first],
                vectors=self.tile,
                runs=len(run.rows),
                x_skip=run.step - tile_flits,
                x_is_wide=tile_flits > self.tile,
                after_products=products,
            )
            first += len(run.rows)

    def update_block(self, slot: int, gradient: int, is_wide: bool) -> Iterator[VectorDescriptor]:
        """One block by itself; ``is_wide``: its gradient is float32."""
        places = (self.regions[name][slot] for name in ("master", "momentum", "weight"))
        master, momentum, weight = places
        yield self._update(master, momentum, gradient, weight, vectors=self.tile, x_is_wide=is_wide)

    def _update(self, value: int, state: int, gradient: int, operand: int, **others: Any) -> VectorDescriptor:
        fields = {"vectors": 1} | others
        return VectorDescriptor(
            ("sgd", "update", 0),
            x=gradient,
            second_x=state,
            second_x_is_wide=True,
            y=value,
            y_is_wide=True,
            output_0=state,
            output_1=value,
            output_2=operand,
            constants=self.regions["update_constants"].base,
            loads_constants=True,
            **fields,
        )
