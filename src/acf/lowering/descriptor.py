"""The descriptor of one product: the 96 bytes that a host sends in place of a list of packets.

Everything else that a controller needs lies in memory as the product's index (`acf.lowering.product_index`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from acf.errors import ArchitectureError

VERSION = 1
WORD_BYTES = 4
DESCRIPTOR_WORDS = 24
DESCRIPTOR_BYTES = WORD_BYTES * DESCRIPTOR_WORDS

POLICIES = ("stored", "round-robin", "longest-first")
"""Who owns an output column: as stored in the index, or as the route planner shares them by a balancer."""


class Field(NamedTuple):
    """Where a field lies: the number of its 32-bit word, its lowest bit there, its width; and what it means."""

    word: int
    low: int
    bits: int
    meaning: str


FIELDS: dict[str, Field] = {
    "version": Field(0, 0, 8, "1"),
    "split_k": Field(0, 8, 1, "1: the reduction is spread over the mesh; 0: output-stationary"),
    "swapped": Field(0, 9, 1, "the right operand is streamed, so the output is transposed"),
    "direct": Field(0, 10, 1, "the index is stored by k_tile (block-CSR); 0: by output column, walked through slots"),
    "masked": Field(0, 11, 1, "only the output tiles of the mask in the index are computed"),
    "serial_transposed": Field(0, 12, 1, "tiles of the streamed operand are stored transposed, dense"),
    "parallel_transposed": Field(0, 13, 1, "tiles of the stationary operand are stored transposed, dense"),
    "fresh_index": Field(
        0, 14, 1, "the index is read when the product may begin (after_vectors); 0: once it is started"
    ),
    "policy": Field(0, 16, 8, "owners of output columns: " + ", ".join(f"{n} {p}" for n, p in enumerate(POLICIES))),
    "tile": Field(0, 24, 8, "rows and columns of a tile"),
    "rows": Field(1, 0, 32, "rows of the streamed operand"),
    "columns": Field(2, 0, 32, "rows of the stationary operand: output columns"),
    "depth": Field(3, 0, 32, "length of the reduction, in elements"),
    "serial_page": Field(4, 0, 32, "page of 4096 bytes where the tiles of the streamed operand begin"),
    "parallel_page": Field(5, 0, 32, "page where the tiles of the stationary operand begin"),
    "index_page": Field(6, 0, 32, "page where the index begins"),
    "index_words": Field(7, 0, 32, "32-bit words of the index"),
    "result_page": Field(8, 0, 32, "page where the first stream of results goes"),
    "result_pages": Field(9, 0, 32, "pages from one stream of results to the next"),
    "k_tiles": Field(10, 0, 16, "tiles along the reduction"),
    "column_rounds": Field(10, 16, 16, "accumulator rounds over output columns; split-K: over output tiles"),
    "row_rounds": Field(11, 0, 16, "batches of row tiles of every part"),
    "row_tiles": Field(11, 16, 8, "row tiles of a batch"),
    "group_columns": Field(11, 24, 8, "mesh columns of a group, among which output columns are shared"),
    "column_tiles": Field(12, 0, 16, "output columns, in tiles"),
    "columns_per_round": Field(12, 16, 8, "output columns of a cluster in a round"),
    "edge_cycles": Field(12, 24, 8, "cycles of a row of a block that is narrower than a tile"),
    "blocks": Field(13, 0, 32, "tiles of the stationary operand that hold a non-zero"),
    "slots_at": Field(14, 0, 32, "word of the index where slots begin"),
    "entries_at": Field(15, 0, 32, "word where entries begin; split-K: first flits of blocks"),
    "owners_at": Field(16, 0, 32, "word where owners begin; split-K: output tiles"),
    "orders_at": Field(17, 0, 32, "word where the orders of the reduction begin; split-K: the first outputs of rounds"),
    "batches_at": Field(18, 0, 32, "word where the batches of serial tiles begin; split-K: batches of both operands"),
    "batch_stride": Field(19, 0, 32, "words from one k_tile to the next among batches"),
    "mask_at": Field(20, 0, 32, "word where the mask of output tiles begins"),
    "channel_pages": Field(21, 0, 32, "pages from the memory channel of one master to that of the next"),
    "after_vectors": Field(22, 0, 32, "begins when so many vector descriptors are done since the device's reset"),
    "serial_step": Field(23, 0, 32, "flits from one row tile of a batch to the next; 0: as their sizes tell"),
}
"""The fields of a descriptor."""

FLAGS = ("split_k", "swapped", "direct", "masked", "serial_transposed", "parallel_transposed", "fresh_index")
"""Fields of one bit."""


@dataclass(frozen=True, kw_only=True)
class ProductDescriptor:
    """One product for a device; `FIELDS` gives the meaning of every field."""

    split_k: bool
    swapped: bool
    direct: bool
    masked: bool
    policy: str
    tile: int
    rows: int
    columns: int
    depth: int
    k_tiles: int
    column_rounds: int
    row_rounds: int
    row_tiles: int
    group_columns: int
    column_tiles: int
    columns_per_round: int
    edge_cycles: int
    blocks: int
    slots_at: int
    entries_at: int
    owners_at: int
    orders_at: int
    batches_at: int
    batch_stride: int
    mask_at: int
    index_words: int
    serial_page: int = 0
    parallel_page: int = 0
    index_page: int = 0
    result_page: int = 0
    result_pages: int = 0
    channel_pages: int = 0
    serial_transposed: bool = False
    parallel_transposed: bool = False
    fresh_index: bool = False
    after_vectors: int = 0
    serial_step: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ArchitectureError(f"policy {self.policy!r} is not one of {', '.join(POLICIES)}; use one of these")
        for name, field in FIELDS.items():
            value = self._value(name)
            if not 0 <= value < 1 << field.bits:
                raise ArchitectureError(
                    f"{name} {value} does not fit in the {field.bits} bits of a descriptor; cut the product"
                )

    def _value(self, name: str) -> int:
        if name == "version":
            return VERSION
        if name == "policy":
            return POLICIES.index(self.policy)
        return int(getattr(self, name))

    def words(self) -> list[int]:
        """The descriptor as it lies in memory: `DESCRIPTOR_WORDS` words of 32 bits, little-endian."""
        words = [0] * DESCRIPTOR_WORDS
        for name, field in FIELDS.items():
            words[field.word] |= self._value(name) << field.low
        return words

    @classmethod
    def from_words(cls, words: Sequence[int]) -> "ProductDescriptor":
        """Read a descriptor back; refuses another version."""
        values: dict[str, Any] = {
            name: int(words[at.word]) >> at.low & (1 << at.bits) - 1 for name, at in FIELDS.items()
        }
        version, policy = values.pop("version"), values.pop("policy")
        if version != VERSION:
            raise ArchitectureError(f"descriptor version {version} is not {VERSION}; write it with this release")
        if policy >= len(POLICIES):
            raise ArchitectureError(f"policy {policy} of a descriptor is not below {len(POLICIES)}; use one of these")
        flags = {name: bool(values[name]) for name in FLAGS}
        return cls(**(values | flags | {"policy": POLICIES[policy]}))


def descriptor_table() -> str:
    """The fields as a Markdown table."""
    lines = ["| word | bits | field | meaning |", "|---|---|---|---|"]
    for name, (word, low, bits, meaning) in FIELDS.items():
        span = str(low) if bits == 1 else f"{low + bits - 1}:{low}"
        lines.append(f"| {word} | {span} | {name} | {meaning} |")
    return "\n".join(lines)
