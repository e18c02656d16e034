"""What the vector work of every step has in common: places in memory, runs of tiles, passes over all, updates."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.optimizer import Optimizer
from acf.rtl.device.vector.descriptor import VectorDescriptor

Key = tuple[str, str, int]
Tile = tuple[int, int]


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
    """Tiles at equal distances: the first at ``flit``, ``step`` flits apart; ``places`` are ``place_step`` apart.

    A place is the row of a tile in its column of tiles, or the column in its row. ``tile_flits``: flits of a tile; of
    float32 values it has twice those of bf16.
    """

    flit: int
    step: int
    places: Sequence[int]
    place_step: int
    tile_flits: int


def runs_of(found: list[tuple[int, int]], tile_flits: int) -> list[Run]:
    """(flit, place) of tiles, in order of flits, as few runs as a greedy walk finds."""
    runs: list[Run] = []
    for flit, place in found:
        last = runs[-1] if runs else None
        if last is not None and len(last.places) == 1 and place > last.places[0] and flit >= last.flit + tile_flits:
            runs[-1] = Run(last.flit, flit - last.flit, [last.places[0], place], place - last.places[0], tile_flits)
        elif (
            last is not None
            and len(last.places) > 1
            and (flit, place)
            == (
                last.flit + last.step * len(last.places),
                last.places[-1] + last.place_step,
            )
        ):
            runs[-1] = Run(last.flit, last.step, [*last.places, place], last.place_step, tile_flits)
        else:
            runs.append(Run(flit, tile_flits, [place], 1, tile_flits))
    return runs


class Passes(ABC):
    """Makes the descriptors of a step with ``rows x columns`` tiles of outputs; ``regions``: where all else lies."""

    def __init__(self, regions: dict[str, Region], tile: int, rows: int, columns: int, optimizer: Optimizer) -> None:
        self.regions, self.tile, self.rows, self.columns, self.optimizer = regions, tile, rows, columns, optimizer

    @abstractmethod
    def places(self) -> dict[str, tuple[int, int]]:
        """Regions that these passes need: flits of a piece, and pieces."""

    @abstractmethod
    def runs(self, results: dict[Tile, int], tile_flits: int) -> list[list[Run]]:
        """Where the forward product leaves its tiles, by column of tiles or by row, whichever sums go over."""

    @abstractmethod
    def before_gradient(self, runs: list[list[Run]]) -> Iterator[VectorDescriptor]:
        """From the product's output to the loss, and back to the gradient of that output, ``dz``."""

    @abstractmethod
    def update_channels(self) -> Iterator[VectorDescriptor]:
        """Gamma and beta."""

    @abstractmethod
    def contents(self, state: StepState, sizes: StepSizes) -> dict[str, bytes]:
        """What the host puts into regions before the step, by name."""

    @abstractmethod
    def read_channels(self, read: Callable[[str], Floats]) -> Floats:
        """``channels`` as in `StepState`; ``read`` gives the float32 numbers of a region."""

    def read_loss(self, read: Callable[[str], Floats]) -> Floats:
        """The loss of every token, where the device computes it."""
        return np.zeros(0, dtype=np.float32)

    def activation_place(self, tile: Tile) -> int:
        """The number of a tile of activations in its region: column by column, as an index has the tiles of ``dz``."""
        return tile[1] * self.rows + tile[0]

    def activation(self, name: str, tile: Tile) -> int:
        """The first flit of a tile of activations."""
        return self.regions[name][self.activation_place(tile)]

    def activation_bytes(self, values: NDArray[np.uint16]) -> bytes:
        """A matrix of activations as it lies in its region."""
        tiles = values.reshape(self.rows, self.tile, self.columns, self.tile).swapaxes(1, 2)
        ordered = np.empty((self.rows * self.columns, self.tile, self.tile), dtype=values.dtype)
        for row in range(self.rows):
            for column in range(self.columns):
                ordered[self.activation_place((row, column))] = tiles[row, column]
        return ordered.tobytes()

    def activation_values(self, content: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """A matrix of activations out of its region."""
        tiles = content.reshape(-1, self.tile, self.tile)
        places = [[self.activation_place((row, column)) for column in range(self.columns)] for row in range(self.rows)]
        return np.ascontiguousarray(np.block([[tiles[place] for place in row] for row in places]))

    def whole(self, key: Key, x: str, y: str | None, to: str) -> VectorDescriptor:
        """A pass over all activations."""
        return VectorDescriptor(
            key,
            vectors=self.tile,
            runs=self.regions[x].count,
            x=self.regions[x].base,
            y=0 if y is None else self.regions[y].base,
            output_0=self.regions[to].base,
            barrier=True,
        )

    def update_weights(self, gradients: list[int], tile_flits: int, products: int) -> Iterator[VectorDescriptor]:
        """Runs of blocks whose gradients are equally far apart, once so many products are done.

        ``tile_flits``: flits of a block's gradient.
        """
        first = 0
        for run in runs_of([(at, number) for number, at in enumerate(gradients)], tile_flits):
            yield self.update(
                self._block_places(first, run.flit),
                gradient_is_wide=tile_flits > self.tile,
                vectors=self.tile,
                runs=len(run.places),
                after_products=products,
                **{f"{self.gradient_stream}_skip": run.step - tile_flits},
            )
            first += len(run.places)

    def update_block(self, slot: int, gradient: int, is_wide: bool) -> Iterator[VectorDescriptor]:
        """One block by itself; ``is_wide``: its gradient is float32."""
        places = self._block_places(slot, gradient)
        yield self.update(places, is_wide, vectors=self.tile)

    def _block_places(self, slot: int, gradient: int) -> "UpdatedPlaces":
        master, moments, weight = (self.regions[name][slot] for name in ("master", "moments", "weight"))
        return UpdatedPlaces(master, moments, weight, gradient)

    @property
    def gradient_stream(self) -> str:
        """The input stream of an update that is the gradient."""
        return next(name for name in ("x", "second_x", "y") if getattr(self.optimizer, name) == "gradient")

    def update(self, places: "UpdatedPlaces", gradient_is_wide: bool, **others: Any) -> VectorDescriptor:
        """An update of the values at ``places``; ``others``: further fields of the descriptor."""
        fields = {"vectors": 1} | others
        for name in ("x", "second_x", "y"):
            stream = getattr(self.optimizer, name)
            fields[name] = getattr(places, stream)
            fields[f"{name}_is_wide"] = gradient_is_wide if stream == "gradient" else True
        return VectorDescriptor(
            self.optimizer.program,
            output_0=places.moments,
            output_1=places.master,
            output_2=places.operand,
            constants=self.regions["update_constants"].base,
            loads_constants=True,
            **fields,
        )


@dataclass(frozen=True)
class UpdatedPlaces:
    """Flits where an update finds master values, moments and the gradient, and where it puts bf16 operands."""

    master: int
    moments: int
    operand: int
    gradient: int
