"""The vector work of a step of a CNN: batch normalisation, ReLU, the squared error's gradient, and back."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from acf.rtl.device.step.channel_reference import input_constants
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.passes import Key, Passes, Region, Run, Tile, UpdatedPlaces, runs_of
from acf.rtl.device.vector.descriptor import VectorDescriptor

INPUT_CONSTANTS, CHANNEL_CONSTANTS = 5, 8
"""Vectors of a channel group: -1/2n, -eps/2, gamma, beta, 1.5; then -1/n, scale, shift, 1/deviation, -mean/deviation
and three for the backward pass."""

_SCALE, _INVERSE, _GRADIENTS = 1, 3, 5  # where constants of the passes begin among the latter
_SIGN = np.uint16(0x8000)


class ChannelPasses(Passes):
    """A lane is a channel, and a column of tiles a channel group, which is contiguous."""

    def places(self) -> dict[str, tuple[int, int]]:
        """Activations, and numbers of channels."""
        activations = ("target", "normalised", "y", "dy", "masked", "dz")
        return dict.fromkeys(activations, (self.tile, self.rows * self.columns)) | {
            "input_constants": (2 * INPUT_CONSTANTS, self.columns),
            "channel_constants": (2 * CHANNEL_CONSTANTS, self.columns),
            "channel_moments": (4 * self.optimizer.moments, self.columns),
            "sums": (4, self.columns),
            "gradient_sums": (4, self.columns),
            "discarded": (1, 1),
        }

    def runs(self, results: dict[Tile, int], tile_flits: int) -> list[list[Run]]:
        """By column of tiles."""
        return [
            runs_of([(at, row) for (row, at_column), at in results.items() if at_column == column], tile_flits)
            for column in range(self.columns)
        ]

    def before_gradient(self, runs: list[list[Run]]) -> Iterator[VectorDescriptor]:
        """Batch normalisation, ReLU, the loss's gradient, and back to the product's output."""
        kind = "batch_norm"
        yield from self._sums((kind, "forward", 0), runs, "sums", is_backward=False)
        yield from self._per_channel((kind, "statistics", 0), "sums", self.regions["input_constants"], _SCALE)
        yield from self._elementwise((kind, "forward", 1), runs, _SCALE, "normalised")
        yield self.whole(("relu", "forward", 0), "normalised", None, "y")
        yield self.whole(("add", "forward", 0), "y", "target", "dy")
        yield self.whole(("relu", "backward", 0), "dy", "y", "masked")
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
                    output_0=self.activation(to, (run.places[0], column)),
                    output_skip=run.place_step * self.tile - self.tile,
                    barrier=column == number == 0,
                )

    def _inputs(self, run: Run, column: int, constants: int) -> dict[str, Any]:
        """Tiles of the product's output, and those of the gradient behind them, where a pass reads it."""
        return {
            "vectors": self.tile,
            "runs": len(run.places),
            "x": run.flit,
            "x_skip": run.step - run.tile_flits,
            "x_is_wide": run.tile_flits > self.tile,
            "y": self.activation("masked", (run.places[0], column)),
            "y_skip": run.place_step * self.tile - self.tile,
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

    def update_channels(self) -> Iterator[VectorDescriptor]:
        """Gamma and beta: their gradients are the second and the first sum of the backward pass."""
        for column in range(self.columns):
            for number, sums in ((0, 2), (1, 0)):
                places = UpdatedPlaces(
                    master=self.regions["input_constants"][column] + 2 * (2 + number),
                    moments=self.regions["channel_moments"][column] + 2 * self.optimizer.moments * number,
                    operand=self.regions["discarded"].base,
                    gradient=self.regions["gradient_sums"][column] + sums,
                )
                yield self.update(places, gradient_is_wide=True)

    def contents(self, state: StepState, sizes: StepSizes) -> dict[str, bytes]:
        """The target with its sign turned, since the loss's gradient is y - target; constants of channels."""
        groups = state.channels.reshape(len(state.channels), -1, self.tile).swapaxes(0, 1)
        counts = np.zeros((self.columns, CHANNEL_CONSTANTS, self.tile), dtype=np.float32)
        counts[:, 0] = -1 / sizes.tokens
        return {
            "target": self.activation_bytes(state.target ^ _SIGN),
            "input_constants": b"".join(input_constants(sizes, *group[:2]).tobytes() for group in groups),
            "channel_moments": b"".join(group[2:].tobytes() for group in groups),
            "channel_constants": counts.tobytes(),
        }

    def read_channels(self, read: Callable[[str], Floats]) -> Floats:
        """Gamma and beta lie among the constants."""
        values = read("input_constants").reshape(-1, INPUT_CONSTANTS, self.tile)[:, 2:4]
        moments = read("channel_moments").reshape(-1, 2 * self.optimizer.moments, self.tile)
        both = np.concatenate([values, moments], axis=1)
        return np.ascontiguousarray(both.swapaxes(0, 1)).reshape(both.shape[1], -1)
