"""A vector descriptor: one pass of the vector unit over runs of vectors in memory, as sixteen 32-bit words."""

from dataclasses import dataclass, fields

from acf.errors import RtlError
from acf.rtl.design.vector.registry import PROGRAM_SETS

WORDS = 16
"""Words of a descriptor."""

DESCRIPTOR_BYTES = 4 * WORDS

OUTPUTS = 3
"""Result streams of a pass: an optimizer update has three, a layer normalisation two, other passes use the first."""

ORDERS = {"rows": 0, "columns": 1, "spread": 2}
"""How the flits of an input become vectors. rows: as they lie, a flit of bf16 or two of float32 each. columns: tiles
are transposed, so that a lane has a row. spread: a flit becomes a vector for each value, which is then in all lanes."""

PROGRAMS = PROGRAM_SETS["transformer"]
"""The programs that a descriptor can name; a device with fewer of them gives up a list that names another."""

UNQUEUED = (("pool", "forward", 0), ("pool", "backward", 0))
"""Programs that no descriptor can name: windows of 3 x 3 overlap, and a stream reads every flit once."""

FIELDS: dict[str, tuple[int, int, int, str]] = {
    "program": (0, 0, 8, "number of the program (`PROGRAM_SETS`)"),
    "x_is_wide": (0, 8, 1, "x is float32, else bf16"),
    "y_is_wide": (0, 9, 1, "y is float32, else bf16"),
    "keeps_sums": (0, 10, 1, "sums go on from the descriptor before"),
    "stores_sums": (0, 11, 1, "both sums are written to the third output"),
    "loads_constants": (0, 12, 1, "five vectors of float32 constants are read first"),
    "barrier": (0, 13, 1, "begins when all results of earlier descriptors are in memory"),
    "second_x_is_wide": (0, 14, 1, "second x is float32, else bf16"),
    "turns_outputs": (0, 15, 1, "tiles of the first two outputs are transposed as they are written"),
    "x_order": (0, 16, 2, "vectors of x: 0 rows as they lie, 1 columns of tiles, 2 each value spread to all lanes"),
    "y_order": (0, 18, 2, "vectors of y, likewise"),
    "second_x_order": (0, 20, 2, "vectors of second x, likewise"),
    "vectors": (1, 0, 16, "vectors of a run"),
    "runs": (2, 0, 16, "runs"),
    "after_products": (3, 0, 32, "begins when so many products are done since the device's reset"),
    "x": (4, 0, 32, "flit where x begins"),
    "y": (5, 0, 32, "flit where y begins"),
    "second_x": (
        6,
        0,
        32,
        "flit where the second x begins: moments of an update; beta or dy of a layer norm",
    ),
    "output_0": (7, 0, 32, "flit where the first results go"),
    "output_1": (8, 0, 32, "flit where the second results go"),
    "output_2": (9, 0, 32, "flit where the third results go, or the sums"),
    "constants": (10, 0, 32, "flit where the constants lie"),
    "x_skip": (11, 0, 32, "flits between a run of x and the next"),
    "y_skip": (12, 0, 32, "flits between a run of y and the next"),
    "output_skip": (13, 0, 32, "flits between a run of results and the next"),
    "second_x_skip": (14, 0, 32, "flits between a run of second x and the next"),
}
"""Word, lowest bit, bits and meaning of every field; a flit is ``link_bytes`` of memory."""


@dataclass(frozen=True)
class VectorDescriptor:
    """The fields of `FIELDS`, with the program by its key and orders by name; addresses and skips in flits."""

    program: tuple[str, str, int]
    vectors: int
    runs: int = 1
    after_products: int = 0
    x: int = 0
    y: int = 0
    second_x: int = 0
    output_0: int = 0
    output_1: int = 0
    output_2: int = 0
    constants: int = 0
    x_skip: int = 0
    y_skip: int = 0
    output_skip: int = 0
    second_x_skip: int = 0
    x_is_wide: bool = False
    y_is_wide: bool = False
    second_x_is_wide: bool = False
    x_order: str = "rows"
    y_order: str = "rows"
    second_x_order: str = "rows"
    turns_outputs: bool = False
    keeps_sums: bool = False
    stores_sums: bool = False
    loads_constants: bool = False
    barrier: bool = False

    def __post_init__(self) -> None:
        PROGRAMS.number(*self.program)
        if self.program in UNQUEUED:
            name = " ".join(map(str, self.program))
            raise RtlError(f"{name} has windows that overlap, and a stream reads every flit once; use windows of 2 x 2")
        self._check_orders()
        for name, value in self._values().items():
            bits = FIELDS[name][2]
            if not 0 <= value < 1 << bits:
                raise RtlError(f"{name} {value} does not fit in {bits} bits of a vector descriptor; cut the pass")
        if self.vectors < 1 or self.runs < 1:
            raise RtlError(
                f"a pass over {self.runs} runs of {self.vectors} vectors does nothing; give at least 1 of each"
            )
        if self.vectors * self.runs >= 1 << 24:
            raise RtlError(f"{self.vectors * self.runs} vectors are more than the unit counts, 2^24 - 1; cut the pass")
        if self.stores_sums and self.program[1] == "update":
            name = " ".join(map(str, self.program))
            raise RtlError(f"{name} writes to the third output, where sums would go; leave stores_sums out")

    def _check_orders(self) -> None:
        for name in ("x", "y", "second_x"):
            order = getattr(self, f"{name}_order")
            if order not in ORDERS:
                raise RtlError(f"{name}_order {order!r} is not one of {', '.join(ORDERS)}; use one of these")
            if order != "rows" and getattr(self, f"{name}_is_wide"):
                raise RtlError(f"{name} is float32, and {order} are made of bf16 alone; round it in a pass before")

    def _values(self) -> dict[str, int]:
        """Every field as it lies in memory."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        orders = {name: ORDERS[value] for name, value in values.items() if name.endswith("_order")}
        return {
            name: int(value) for name, value in (values | orders | {"program": PROGRAMS.number(*self.program)}).items()
        }

    def content(self) -> bytes:
        """The sixteen words as they lie in memory."""
        words = [0] * WORDS
        for name, value in self._values().items():
            word, low, _, _ = FIELDS[name]
            words[word] |= value << low
        return b"".join(word.to_bytes(4, "little") for word in words)


def descriptor_table() -> str:
    """The fields as a Markdown table."""
    lines = ["| word | bits | field | meaning |", "|---|---|---|---|"]
    for name, (word, low, bits, meaning) in FIELDS.items():
        places = str(low) if bits == 1 else f"{low + bits - 1}:{low}"
        lines.append(f"| {word} | {places} | {name} | {meaning} |")
    return "\n".join(lines)
