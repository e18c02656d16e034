"""Values of ports as NumPy arrays: uint64 ``[cycles, words]``, packed, unpacked, split into fields."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.errors import RtlError
from acf.rtl.design.primitives.ports import WORD_BITS, Port

Words = NDArray[np.uint64]


def columns_of(ports: Sequence[Port]) -> int:
    """Words of one cycle of all these ports."""
    return sum(port.words for port in ports)


def pack_values(port: Port, values: ArrayLike, cycles: int) -> Words:
    """Values of a port as uint64 ``[cycles, words]``; ``values`` is one for all cycles, ``[cycles]`` or packed."""
    array = np.asarray(values)
    if array.dtype == bool:
        array = array.astype(np.uint64)
    if not np.issubdtype(array.dtype, np.integer):
        raise RtlError(f"port {port.name} is given {array.dtype} values; give integers, floats as their bits")
    if array.ndim < 2 and port.words > 1:
        raise RtlError(
            f"port {port.name} has {port.width} bits; give [cycles, {port.words}] words of 64 bits, least first"
        )
    fits = array.ndim < 3 and (array.ndim < 2 or array.shape[1] == port.words)
    if not fits or (array.ndim and len(array) not in (1, cycles)):
        raise RtlError(
            f"port {port.name} is given values of shape {list(array.shape)} in {cycles} cycles; give one for all "
            "cycles or one for each"
        )
    packed = np.broadcast_to(array.astype(np.uint64).reshape(-1, port.words), (cycles, port.words))
    top_bits = port.width - (port.words - 1) * WORD_BITS
    if cycles and top_bits < WORD_BITS and int(packed[:, -1].max()) >> top_bits:
        raise RtlError(f"port {port.name} has {port.width} bits and is given a value that needs more; mask it first")
    return packed


def pack_inputs(ports: Sequence[Port], inputs: Mapping[str, ArrayLike], cycles: int) -> Words:
    """Named inputs as uint64 ``[cycles, words]`` in the order of ``ports``; those that are not named are 0."""
    unknown = [name for name in inputs if name not in {port.name for port in ports}]
    if unknown:
        known = ", ".join(port.name for port in ports)
        raise RtlError(f"{unknown[0]!r} is no input of this component; its inputs are {known}")
    packed = np.zeros((cycles, columns_of(ports)), dtype=np.uint64)
    column = 0
    for port in ports:
        if port.name in inputs:
            packed[:, column : column + port.words] = pack_values(port, inputs[port.name], cycles)
        column += port.words
    return packed


def unpack_values(words: Words) -> Words:
    """Words of a port as a caller gets them: ``[cycles]`` where one word holds a value, ``[cycles, words]`` else."""
    return words[:, 0].copy() if words.shape[1] == 1 else words.copy()


def split_bits(packed: NDArray[np.uint64], width: int, count: int) -> Words:
    """Cut ``count`` fields of ``width`` bits, the first lowest, out of a port: uint64 ``[cycles, count]``.

    >>> split_bits(np.array([0x321], dtype=np.uint64), width=4, count=3).tolist()
    [[1, 2, 3]]
    """
    rows = packed.reshape(len(packed), -1).astype("<u8")
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")[:, : width * count]
    weights = np.uint64(1) << np.arange(width, dtype=np.uint64)
    fields: Words = (bits.reshape(-1, count, width) * weights).sum(axis=2, dtype=np.uint64)
    return fields


def join_bits(fields: ArrayLike, width: int) -> Words:
    """The inverse of `split_bits`: ``fields [cycles, count]`` of ``width`` bits as ``[cycles]`` or ``[cycles, words]``.

    >>> join_bits([[1, 2, 3]], width=4).tolist() == [0x321]
    True
    """
    values = np.asarray(fields).astype(np.uint64)
    shifts = np.arange(width, dtype=np.uint64)
    bits = ((values[:, :, None] >> shifts) & np.uint64(1)).astype(np.uint8).reshape(len(values), -1)
    padded = np.zeros((len(values), -(-bits.shape[1] // WORD_BITS) * WORD_BITS), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return unpack_values(np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64))
