"""Measured shares of zeros for the layers of a step, read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from acf.errors import ArchitectureError
from acf.records import data_of, parse_json, read_value
from acf.zoo.synthetic import Zeros

Layer = TypeVar("Layer", bound=Any)
"""A `StepLayer`: it has a ``name`` and ``zeros``."""


def with_measured_zeros(layers: Sequence[Layer], path: Path, network: str, sparsity: float) -> list[Layer]:
    """``layers`` with the shares of ``path`` in place of their own; a layer that the file lacks is refused."""
    shares = read_zeros(path, network, sparsity)
    for layer in layers:
        if layer.name not in shares:
            raise ArchitectureError(
                f"{path} has no layer {layer.name!r} of {network}; measure them all with acf bench zeros {network}"
            )
    return [replace(layer, zeros=shares[layer.name]) for layer in layers]


@cache
def read_zeros(path: Path, network: str, sparsity: float) -> Mapping[str, Zeros]:
    """Zeros of every layer: from a record of `acf bench zeros`, or from ``{layer: {activations: x, gradients: y}}``.

    A record has several networks and sparsities; of these the one asked for is taken.
    """
    try:
        stored = data_of(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ArchitectureError(f"{path} cannot be read as shares of zeros ({error}); name a JSON file") from None
    if not isinstance(stored, dict):
        raise ArchitectureError(
            f"{path} holds no shares of zeros by layer; write {{layer: {{activations, gradients}}}}"
        )
    is_record = any(isinstance(each, dict) and "variants" in each for each in stored.values())
    layers = _variant(path, stored, network, sparsity) if is_record else stored
    return {name: _zeros(path, name, shares) for name, shares in layers.items()}


@dataclass(frozen=True)
class _Variant:
    """The part of a measured network that is read here."""

    sparsity: float
    gradient_target: float | None
    layers: dict[str, Any]


def _known(variant: dict[str, Any]) -> dict[str, Any]:
    return {each.name: variant[each.name] for each in fields(_Variant)}


def _variant(path: Path, record: dict[str, Any], network: str, sparsity: float) -> dict[str, Any]:
    try:
        variants: list[_Variant] = read_value(
            list[_Variant], [_known(each) for each in record[network]["variants"]], "variants"
        )
    except KeyError:
        variants = []
    except (TypeError, ValueError) as error:
        raise ArchitectureError(f"{path} is no record of zeros ({error}); measure it with acf bench zeros") from error
    for variant in variants:
        if variant.sparsity == sparsity and not variant.gradient_target:
            return variant.layers
    measured = ", ".join(f"{variant.sparsity:g}" for variant in variants) or "none"
    raise ArchitectureError(
        f"{path} has no {network} at sparsity {sparsity:g} (measured: {measured}); "
        f"measure it with acf bench zeros {network} --sparsity {sparsity:g}"
    )


def _zeros(path: Path, layer: str, shares: Any) -> Zeros:
    """Plain shares, or means over seeds."""
    try:
        found = [shares[operand] for operand in ("activations", "gradients")]
        activations, gradients = (float(each["mean"] if isinstance(each, dict) else each) for each in found)
    except (KeyError, TypeError, ValueError):
        raise ArchitectureError(
            f"layer {layer!r} of {path} is {shares!r}; give it activations and gradients, shares from 0 to 1"
        ) from None
    if not (0 <= activations <= 1 and 0 <= gradients <= 1):
        raise ArchitectureError(
            f"layer {layer!r} of {path} has shares {activations:g} and {gradients:g}; they must lie within 0 to 1"
        )
    return Zeros(activations, gradients)
