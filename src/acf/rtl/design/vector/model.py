"""What the vector unit computes, by NumPy's floats: rounded after every operation, subnormals flushed to zero."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.rtl.design.arithmetic.model import QUIET_NAN, add_flushed, bf16_bits, bf16_values, multiply_flushed
from acf.rtl.design.vector.function_model import Kept, function_value
from acf.rtl.design.vector.operation import LITERALS, Operation
from acf.rtl.design.vector.program_set import starts_lowest
from acf.rtl.design.vector.registry import PROGRAM_SETS

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class VectorInputs:
    """Inputs of a pass: ``x`` and ``y`` ``[takes, lanes]`` in order of taking, ``mask`` ``[takes, lanes]``.

    ``constants [5, lanes]``: of each lane.
    """

    x: Floats
    y: Floats
    mask: NDArray[np.bool_]
    constants: Floats


@dataclass(frozen=True, eq=False)
class VectorOutputs:
    """Results of a pass: ``out`` float32 bits and ``mask`` ``[emits, lanes]``, sums ``[lanes]``, and ``cycles``."""

    out: NDArray[np.uint32]
    mask: NDArray[np.bool_]
    first_sums: NDArray[np.uint32]
    second_sums: NDArray[np.uint32]
    cycles: int


def run_pass(
    key: tuple[str, str, int], inputs: VectorInputs, vectors: int, sums: VectorOutputs | None = None
) -> VectorOutputs:
    """A pass over ``vectors`` vectors; an operation of all lanes takes a cycle.

    Sums begin at zero (-Inf before a maximum), or at those of ``sums``, the pass before.
    """
    program, lanes = PROGRAM_SETS["transformer"].programs[key], inputs.x.shape[1]
    held = {name: np.zeros(lanes, dtype=np.float32) for name in ("result", "first_sum", "second_sum", "x", "y")}
    if sums is not None:
        held |= {"first_sum": sums.first_sums.view(np.float32), "second_sum": sums.second_sums.view(np.float32)}
    elif starts_lowest(program):
        held["first_sum"] = np.full(lanes, -np.inf, dtype=np.float32)
    held |= {name: np.full(lanes, value, dtype=np.float32) for name, value in {"one": 1.0, **LITERALS}.items()}
    kept = Kept(*np.zeros((2, lanes), dtype=np.int64))
    held |= {f"constant_{number}": _flushed(each) for number, each in enumerate(inputs.constants)}
    out: list[NDArray[np.uint32]] = []
    masks: list[NDArray[np.bool_]] = []
    taken = 0
    for operation in program * vectors:
        for name in operation.takes:
            held[name] = _flushed(getattr(inputs, name)[taken])
        mask = inputs.mask[min(taken, len(inputs.mask) - 1)]
        taken += bool(operation.takes)
        held["mask_one"] = mask.astype(np.float32)
        if operation.keeps:
            stays = mask if operation.keeps == "mask" else (held["x"] > 0) | np.isnan(held["x"])
            value = np.where(stays, held["x"], np.float32(0))
        else:
            product = multiply_flushed(*_factors(operation, held))
            total = product if operation.addend == "nothing" else add_flushed(product, held[operation.addend])
            value = function_value(operation, held, total, kept)
        held[operation.to] = value
        if operation.emits:
            out.append(_bits(bf16_values(bf16_bits(value)) if operation.rounds else value))
            masks.append(held["x"] > 0)
    return VectorOutputs(
        out=np.array(out, dtype=np.uint32).reshape(-1, lanes),
        mask=np.array(masks, dtype=bool).reshape(-1, lanes),
        first_sums=_bits(held["first_sum"]),
        second_sums=_bits(held["second_sum"]),
        cycles=len(program) * vectors,
    )


def _factors(operation: Operation, held: dict[str, Floats]) -> tuple[Floats, Floats]:
    left, right = held[operation.left], held[operation.right]
    if operation.function != "where_equal":
        return left, right
    return np.where(held["y"] == right, left, np.float32(0)), np.ones_like(left)


def _flushed(values: Floats) -> Floats:
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def _bits(values: Floats) -> NDArray[np.uint32]:
    """Float32 bits, every NaN the quiet one."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(QUIET_NAN), bits)
