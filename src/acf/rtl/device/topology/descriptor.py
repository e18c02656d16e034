"""A topology descriptor: one update of a layer's topology, an entry of a list of vector descriptors."""

from dataclasses import dataclass, fields

from acf.errors import RtlError
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES

PROGRAM = 255
"""The number that stands in a topology descriptor where a vector descriptor has its program's."""

NO_SLOT = 0xFFFFFFFF
"""In the table of slots: the block is absent."""

SCORE_FLITS = 4
"""Flits of the sums of a block; the second half are sums of squares by lane."""

FIELDS: dict[str, tuple[int, int, int, str]] = {
    "program": (0, 0, 8, f"{PROGRAM}"),
    "two_moments": (0, 8, 1, "the optimizer keeps two moments of every weight, those of a vector one behind the other"),
    "gradient_is_y": (0, 9, 1, "the optimizer's descriptors have the gradient as y, else as x"),
    "barrier": (0, 13, 1, "begins when all results of earlier descriptors are in memory"),
    "needs_rows": (0, 14, 1, "fails, and changes nothing, where a row of blocks would be empty"),
    "needs_columns": (0, 15, 1, "fails, and changes nothing, where a column of blocks would be empty"),
    "size": (0, 16, 8, "size byte of a block in the index"),
    "group_columns": (
        0,
        24,
        8,
        "split-K weight gradient: mesh columns of a group, to which its output tiles are dealt out; 0: it has a mask",
    ),
    "rows": (1, 0, 16, "rows of blocks: inputs"),
    "columns": (1, 16, 16, "columns of blocks: outputs"),
    "blocks": (2, 0, 16, "blocks that are present; a slot of the packed weight each"),
    "moves": (2, 16, 16, "blocks to move: the present ones of the least norm go where absent gradients are largest"),
    "after_products": (3, 0, 32, "begins when so many products are done since the device's reset"),
    "table": (4, 0, 32, "flit of the table of slots: a word for every block, row by row; 0xffffffff: absent"),
    "norms": (5, 0, 32, "flit of the sums of the first slot's weights, 4 flits a slot"),
    "gradient_norms": (6, 0, 32, "flit of the sums of the first block's gradient, 4 flits a block, row by row"),
    "gradients": (7, 0, 32, "flit of the table of gradients: a word for every block, the flit where its gradient lies"),
    "updates": (8, 0, 32, "flit of the optimizer's descriptor of the first slot; one for every slot"),
    "forward_index": (9, 0, 32, "flit of the index of the forward product: offsets, slots and entries of the weight"),
    "input_index": (10, 0, 32, "flit of the index of the input gradient, in the same form"),
    "mask": (11, 0, 32, "flit of the mask in the index of the weight gradient, or of its list of output tiles"),
    "weight": (12, 0, 32, "flit of the first slot's weight, bf16; zeroed where a block has moved"),
    "master": (13, 0, 32, "flit of the first slot's weight in float32; zeroed likewise"),
    "moments": (14, 0, 32, "flit of the first slot's moments in float32; zeroed likewise"),
}
"""Word, lowest bit, bits and meaning of every field; a flit is ``link_bytes`` of memory."""


@dataclass(frozen=True, kw_only=True)
class TopologyDescriptor:
    """The fields of `FIELDS`; the parts of an index begin at multiples of a flit."""

    rows: int
    columns: int
    blocks: int
    moves: int
    size: int
    table: int
    norms: int
    gradient_norms: int
    gradients: int
    updates: int
    forward_index: int
    input_index: int
    mask: int
    weight: int
    master: int
    moments: int
    after_products: int = 0
    group_columns: int = 0
    two_moments: bool = False
    gradient_is_y: bool = False
    barrier: bool = True
    needs_rows: bool = True
    needs_columns: bool = True

    def __post_init__(self) -> None:
        for name, (_, _, bits, _) in FIELDS.items():
            if name != "program" and not 0 <= int(getattr(self, name)) < 1 << bits:
                raise RtlError(
                    f"{name} {getattr(self, name)} does not fit in {bits} bits of a topology descriptor; cut the layer"
                )
        absent = self.rows * self.columns - self.blocks
        if not 1 <= self.moves <= min(self.blocks, absent):
            raise RtlError(
                f"moves {self.moves} must be at least 1 and at most the {self.blocks} blocks and the {absent} absent "
                "ones; move fewer"
            )

    def content(self) -> bytes:
        """The sixteen words as they lie in memory."""
        values = {each.name: int(getattr(self, each.name)) for each in fields(self)} | {"program": PROGRAM}
        words = [0] * (DESCRIPTOR_BYTES // 4)
        for name, (word, low, _, _) in FIELDS.items():
            words[word] |= values[name] << low
        return b"".join(word.to_bytes(4, "little") for word in words)


def descriptor_table() -> str:
    """The fields as a Markdown table."""
    lines = ["| word | bits | field | meaning |", "|---|---|---|---|"]
    for name, (word, low, bits, meaning) in FIELDS.items():
        places = str(low) if bits == 1 else f"{low + bits - 1}:{low}"
        lines.append(f"| {word} | {places} | {name} | {meaning} |")
    return "\n".join(lines)
