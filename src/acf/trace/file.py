"""Trace files: safetensors with packed bits, and the operations as JSON in the metadata. Nothing is ever unpickled.

The bits of an operand of a large file are read when checksums are compared, and again whenever it is played; they are
not kept in between.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from acf.checksums import CHECKSUMS_KEY, Part, check_parts, checksums
from acf.errors import TraceError
from acf.files import write_whole
from acf.trace.bits import BitTensor
from acf.trace.op import TracedOp
from acf.trace.stored_bits import Span, StoredBits, TraceFile
from acf.trace.trace import Trace
from acf.trace.vector_op import VectorOp

FORMAT = "acf.trace.v1"

MOST_READ_BYTES = 1 << 28
"""Files up to this size are read into memory."""


@dataclass(frozen=True)
class TraceHeader:
    """The metadata beside the bits: label, operations, the shape of every tensor, vector work (none in old files)."""

    label: str
    ops: tuple[TracedOp, ...]
    shapes: dict[str, tuple[int, ...]]
    vector_ops: tuple[VectorOp, ...] = ()


def write_trace(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path`` atomically."""
    shapes = {key: bits.shape for key, bits in trace.tensors.items()}
    header = json.dumps(asdict(TraceHeader(trace.label, tuple(trace.ops), shapes, tuple(trace.vector_ops))))
    packed = {key: bits.packed for key, bits in trace.tensors.items()}
    sums = checksums(_parts(header, packed))
    write_whole(path, save(packed, metadata={FORMAT: header, CHECKSUMS_KEY: sums}))


def read_trace(path: Path) -> Trace:
    """Read ``path``; anything but a complete trace is refused in one line."""
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        is_file = False
    if not is_file:
        raise TraceError(
            f"{str(path)[:200]} is not a file; pass a trace that `acf capture`, `acf demo` or Trace.save wrote"
        )
    try:
        metadata = _metadata(path)
    except (SafetensorError, OSError, ValueError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path} is truncated or no safetensors file ({_first_line(error)}); capture the step and save it again"
        ) from error
    header_text = metadata.get(FORMAT)
    if header_text is None:
        raise TraceError(f"{path} is a safetensors file but no {FORMAT} trace; pass a file that Trace.save wrote")
    header = _parse_header(header_text, path)
    spans, sums = _spans(path), metadata.get(CHECKSUMS_KEY)
    check_parts(path, sums, {FORMAT: header_text.encode()})
    if set(spans) != set(header.shapes):
        raise TraceError(f"{path}: the header and the tensors differ; the file is damaged, capture the step again")
    keep = path.stat().st_size <= MOST_READ_BYTES
    tensors: dict[str, BitTensor] = {}
    for key, shape in header.shapes.items():
        packed = spans[key].read()
        check_parts(path, sums, {key: packed.data})
        tensors[key] = BitTensor(shape, packed) if keep else StoredBits(shape, spans[key])
    return Trace(header.ops, tensors, header.label, header.vector_ops)


def _parts(header: str, packed: dict[str, NDArray[np.uint8]]) -> dict[str, Part]:
    """What is summed: the header and the bits of every tensor."""
    return {FORMAT: header.encode(), **{key: np.ascontiguousarray(bits).data for key, bits in packed.items()}}


def _parse_header(text: str, path: Path) -> TraceHeader:
    from pydantic import TypeAdapter, ValidationError  # machines that only train may lack it

    try:
        return TypeAdapter(TraceHeader).validate_json(text, extra="forbid")
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise TraceError(f"{path}: {where}: {problem['msg']}; the header is damaged, capture the step again") from error


def _metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file; an incomplete file is refused."""
    with safe_open(path, framework="numpy") as file:
        return file.metadata() or {}


def _spans(path: Path) -> dict[str, Span]:
    """Where every tensor lies in the file, whose layout is: header length (8 bytes), JSON header, data."""
    file = TraceFile(path)
    start = 8 + int.from_bytes(file.read(0, 8).tobytes(), "little")
    entries: dict[str, dict[str, Any]] = json.loads(file.read(8, start - 8).tobytes())
    offsets = {name: entry["data_offsets"] for name, entry in entries.items() if name != "__metadata__"}
    return {name: Span(file, start + first, end - first) for name, (first, end) in offsets.items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
