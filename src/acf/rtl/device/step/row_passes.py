"""The vector work of a step of a transformer: layer normalisation, GELU, cross-entropy, and back."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.passes import Key, Passes, Run, Tile, UpdatedPlaces, runs_of
from acf.rtl.device.step.row_reference import share_constants, shift_constants, statistics_constants
from acf.rtl.device.vector.descriptor import VectorDescriptor

ROW_CONSTANTS = 8
"""Vectors of a row of tiles: -1/n, scale, shift, both again and three for the backward pass; for the loss log2(e),
shift, share of the sum, -1/tokens and three that no pass uses."""

_SCALE, _INVERSE, _GRADIENTS = 1, 3, 5  # where constants of a layer normalisation's passes begin
_SHIFT, _SHARE = 1, 2  # and of the loss
_SUMS, _NUMBER = 4, 2  # flits of both sums, and of one float32 number for every row


class RowPasses(Passes):
    """A lane is a token; tiles are transposed on their way."""

    def places(self) -> dict[str, tuple[int, int]]:
        """Activations, numbers of rows, and parameters, which are kept in float32 and as bf16 operands."""
        activations = ("target", "x_hat", "normalised", "y", "powers", "dy", "masked", "dz")
        sums = ("sums", "gradient_sums", "loss_sums", "power_sums")
        shared = ("statistics_constants", "shift_constants", "share_constants")
        return (
            dict.fromkeys(activations, (self.tile, self.rows * self.columns))
            | dict.fromkeys(sums, (_SUMS, self.rows))
            | dict.fromkeys(("row_constants", "loss_constants"), (2 * ROW_CONSTANTS, self.rows))
            | dict.fromkeys(shared, (10, 1))
            | {"loss": (_NUMBER, self.rows), "column_sums": (_SUMS, self.columns)}
            | {"parameters": (2 * _NUMBER, self.columns)}
            | {"channel_moments": (2 * _NUMBER * self.optimizer.moments, self.columns)}
            | dict.fromkeys(("gamma", "beta"), (1, self.columns))
        )

    def runs(self, results: dict[Tile, int], tile_flits: int) -> list[list[Run]]:
        """By row of tiles."""
        return [
            runs_of([(at, column) for (at_row, column), at in results.items() if at_row == row], tile_flits)
            for row in range(self.rows)
        ]

    def before_gradient(self, runs: list[list[Run]]) -> Iterator[VectorDescriptor]:
        """Layer normalisation, GELU, the loss and its gradient, and back to the product's output."""
        yield from self._normalise(runs)
        yield self.whole(("gelu", "forward", 0), "normalised", None, "y")
        yield from self._lose()
        yield self.whole(("gelu", "backward", 0), "normalised", "dy", "masked")
        yield from self._normalise_back()

    def _normalise(self, runs: list[list[Run]]) -> Iterator[VectorDescriptor]:
        """Sums of rows, their scales and shifts, x_hat and the output."""
        for row, own in enumerate(runs):
            for number, run in enumerate(own):
                yield VectorDescriptor(
                    ("layer_norm", "forward", 0),
                    **self._product_tiles(run),
                    after_products=1,
                    keeps_sums=number > 0,
                    stores_sums=run is own[-1],
                    output_2=self.regions["sums"][row],
                )
        yield self._numbers(("batch_norm", "statistics", 0), "sums", "row_constants", _SCALE, "statistics_constants")
        for row, own in enumerate(runs):
            for number, run in enumerate(own):
                yield VectorDescriptor(
                    ("layer_norm", "forward", 1),
                    **self._product_tiles(run)
                    | self._parameter("y", "gamma", run)
                    | self._parameter("second_x", "beta", run),
                    output_0=self.activation("x_hat", (row, run.places[0])),
                    output_1=self.activation("normalised", (row, run.places[0])),
                    output_skip=(run.place_step * self.rows - 1) * self.tile,
                    turns_outputs=True,
                    **self._constants("row_constants", row, _SCALE),
                    barrier=row == number == 0,
                )

    def _lose(self) -> Iterator[VectorDescriptor]:
        """Maxima and logits of labels, exponentials and their sums, the loss, and its gradient."""
        kind = "cross_entropy"
        for row in range(self.rows):
            yield self._row((kind, "forward", 0), row, x="y", y="target", sums="loss_sums")
        yield self._numbers(("softmax", "shift", 0), "loss_sums", "loss_constants", _SHIFT, "shift_constants")
        for row in range(self.rows):
            yield self._row(
                (kind, "forward", 1), row, x="y", output_0="powers", sums="power_sums",
                **self._constants("loss_constants", row, 0),
            )  # fmt: skip
        yield self._numbers(("softmax", "reciprocal", 0), "power_sums", "loss_constants", _SHARE, "share_constants")
        yield self._losses()
        for row in range(self.rows):
            yield self._row(
                (kind, "backward", 0), row, x="powers", y="target", output_0="dy",
                **self._constants("loss_constants", row, _SHARE),
            )  # fmt: skip

    def _losses(self) -> VectorDescriptor:
        """The loss of every token: sums of exponentials, then logits; and maxima."""
        streams: dict[str, Any] = {f"{name}_is_wide": True for name in ("x", "y", "second_x")}
        streams |= {f"{name}_skip": _SUMS - _NUMBER for name in ("x", "y", "second_x")}
        return VectorDescriptor(
            ("cross_entropy", "loss", 0),
            vectors=1,
            runs=self.rows,
            x=self.regions["power_sums"].base,
            second_x=self.regions["loss_sums"].base + _NUMBER,
            y=self.regions["loss_sums"].base,
            output_0=self.regions["loss"].base,
            **streams,
        )

    def _normalise_back(self) -> Iterator[VectorDescriptor]:
        """Two sums of every row, constants out of them, and the gradient of the product's output."""
        inputs = {"x": "x_hat", "second_x": "masked"}
        for row in range(self.rows):
            yield self._row(
                ("layer_norm", "backward", 0), row, **inputs, **self._gamma(), sums="gradient_sums",
            )  # fmt: skip
        for row in range(self.rows):
            yield VectorDescriptor(
                ("batch_norm", "gradients", 0),
                vectors=1,
                x=self.regions["gradient_sums"][row],
                y=self.regions["gradient_sums"][row] + _NUMBER,
                x_is_wide=True,
                y_is_wide=True,
                output_0=self.regions["row_constants"][row] + 2 * _GRADIENTS,
                **self._constants("row_constants", row, 0),
                barrier=row == 0,
            )
        for row in range(self.rows):
            yield self._row(
                ("layer_norm", "backward", 1), row, **inputs, **self._gamma(), output_0="dz",
                **self._constants("row_constants", row, _INVERSE),
            )  # fmt: skip

    def _product_tiles(self, run: Run) -> dict[str, Any]:
        """Tiles of the product's output."""
        return {
            "vectors": self.tile,
            "runs": len(run.places),
            "x": run.flit,
            "x_skip": run.step - run.tile_flits,
            "x_is_wide": run.tile_flits > self.tile,
            "x_order": "columns",
        }

    def _parameter(self, stream: str, name: str, run: Run) -> dict[str, Any]:
        """The values of the run's columns, a flit for every tile."""
        fields = {"": self.regions[name][run.places[0]], "_skip": run.place_step - 1, "_order": "spread"}
        return {f"{stream}{suffix}": value for suffix, value in fields.items()}

    def _gamma(self) -> dict[str, Any]:
        """All of it, a flit for every column of tiles."""
        return {"y": self.regions["gamma"].base, "y_order": "spread"}

    def _constants(self, name: str, row: int, first: int) -> dict[str, Any]:
        return {"constants": self.regions[name][row] + 2 * first, "loads_constants": True}

    def _row(self, key: Key, row: int, **fields: Any) -> VectorDescriptor:
        """A pass over a row of tiles; activations by name as columns of tiles, and the first output likewise."""
        skip = (self.rows - 1) * self.tile
        for name in ("x", "y", "second_x"):
            if isinstance(fields.get(name), str):
                fields |= {name: self.activation(fields[name], (row, 0)), f"{name}_skip": skip}
                fields[f"{name}_order"] = "columns"
        if "output_0" in fields:
            fields |= {"output_0": self.activation(fields["output_0"], (row, 0)), "output_skip": skip}
            fields["turns_outputs"] = True
        if "sums" in fields:
            fields |= {"output_2": self.regions[fields.pop("sums")][row], "stores_sums": True}
        return VectorDescriptor(key, vectors=self.tile, runs=self.columns, barrier=row == 0, **fields)

    def _numbers(self, key: Key, sums: str, to: str, place: int, constants: str) -> VectorDescriptor:
        """Numbers of rows out of their sums, for all rows of tiles in one pass."""
        numbers = 4 if key[1] == "statistics" else 1
        return VectorDescriptor(
            key,
            vectors=1,
            runs=self.rows,
            x=self.regions[sums].base,
            x_skip=_SUMS - _NUMBER,
            x_is_wide=True,
            y=self.regions[sums].base + _NUMBER,
            y_skip=_SUMS - _NUMBER,
            y_is_wide=True,
            output_0=self.regions[to].base + 2 * place,
            output_skip=2 * (ROW_CONSTANTS - numbers),
            constants=self.regions[constants].base,
            loads_constants=True,
            barrier=True,
        )

    def update_channels(self) -> Iterator[VectorDescriptor]:
        """Gradients of gamma and beta, sums over columns; then their update, with operands for the next step."""
        for column in range(self.columns):
            yield VectorDescriptor(
                ("layer_norm", "backward", 2),
                vectors=self.tile,
                runs=self.rows,
                x=self.activation("x_hat", (0, column)),
                y=self.activation("masked", (0, column)),
                stores_sums=True,
                output_2=self.regions["column_sums"][column],
            )
        for column in range(self.columns):
            for number, (name, sums) in enumerate((("gamma", _NUMBER), ("beta", 0))):
                places = UpdatedPlaces(
                    master=self.regions["parameters"][column] + _NUMBER * number,
                    moments=self.regions["channel_moments"][column] + _NUMBER * self.optimizer.moments * number,
                    operand=self.regions[name][column],
                    gradient=self.regions["column_sums"][column] + sums,
                )
                yield self.update(places, gradient_is_wide=True, barrier=column == number == 0)

    def contents(self, state: StepState, sizes: StepSizes) -> dict[str, bytes]:
        """Labels, parameters and constants."""
        groups = state.channels.reshape(len(state.channels), -1, self.tile).swapaxes(0, 1)
        rows = np.zeros((2, self.rows, ROW_CONSTANTS, self.tile), dtype=np.float32)
        rows[0, :, 0] = -1 / sizes.outputs
        rows[1, :, 0], rows[1, :, _SHARE + 1] = np.log2(np.e), -1 / sizes.tokens
        return {
            "target": self.activation_bytes(state.target),
            "parameters": b"".join(group[:2].tobytes() for group in groups),
            "channel_moments": b"".join(group[2:].tobytes() for group in groups),
            "gamma": bf16_bits(state.channels[0]).tobytes(),
            "beta": bf16_bits(state.channels[1]).tobytes(),
            "row_constants": rows[0].tobytes(),
            "loss_constants": rows[1].tobytes(),
            "statistics_constants": statistics_constants(sizes, self.tile).tobytes(),
            "shift_constants": shift_constants(self.tile).tobytes(),
            "share_constants": share_constants(sizes, self.tile).tobytes(),
        }

    def read_channels(self, read: Callable[[str], Floats]) -> Floats:
        """The parameters in float32 and their moments."""
        values = read("parameters").reshape(-1, 2, self.tile)
        moments = read("channel_moments").reshape(-1, 2 * self.optimizer.moments, self.tile)
        both = np.concatenate([values, moments], axis=1)
        return np.ascontiguousarray(both.swapaxes(0, 1)).reshape(both.shape[1], -1)

    def read_loss(self, read: Callable[[str], Floats]) -> Floats:
        """The cross-entropy of every token."""
        return read("loss")
