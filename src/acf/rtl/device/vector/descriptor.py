"""A vector descriptor: one pass of the vector unit over runs of vectors in memory, as sixteen 32-bit words."""

from dataclasses import dataclass, fields

from acf.errors import RtlError
from acf.rtl.design.vector.programs import ALL_PROGRAMS
from acf.rtl.design.vector.registry import program_number

WORDS = 16
"""Words of a descriptor."""

DESCRIPTOR_BYTES = 4 * WORDS

OUTPUTS = 3
"""Result streams of a pass: an optimizer update has three, other passes use the first."""

FIELDS: dict[str, tuple[int, int, int, str]] = {
    "program": (0, 0, 8, "number of the program (`program_number`)"),
    "x_is_wide": (0, 8, 1, "x is float32, else bf16"),
    "y_is_wide": (0, 9, 1, "y is float32, else bf16"),
    "keeps_sums": (0, 10, 1, "sums go on from the descriptor before"),
    "stores_sums": (0, 11, 1, "both sums are written to the first output"),
    "loads_constants": (0, 12, 1, "five vectors of float32 constants are read first"),
    "barrier": (0, 13, 1, "begins when all results of earlier descriptors are in memory"),
    "vectors": (1, 0, 16, "vectors of a run"),
    "runs": (2, 0, 16, "runs"),
    "after_products": (3, 0, 32, "begins when so many products are done since the device's reset"),
    "x": (4, 0, 32, "flit where x begins"),
    "y": (5, 0, 32, "flit where y begins"),
    "second_x": (6, 0, 32, "flit where the second x of an update begins: momentum, float32"),
    "output_0": (7, 0, 32, "flit where the first results go, or the sums"),
    "output_1": (8, 0, 32, "flit where the second results of an update go"),
    "output_2": (9, 0, 32, "flit where the third results of an update go"),
    "constants": (10, 0, 32, "flit where the constants lie"),
    "x_skip": (11, 0, 32, "flits between a run of x and the next"),
    "y_skip": (12, 0, 32, "flits between a run of y and the next"),
    "output_skip": (13, 0, 32, "flits between a run of first results and the next"),
}
"""Word, lowest bit, bits and meaning of every field; a flit is ``link_bytes`` of memory."""


@dataclass(frozen=True)
class VectorDescriptor:
    """The fields of `FIELDS`, with the program by its key; addresses and skips in flits."""

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
    x_is_wide: bool = False
    y_is_wide: bool = False
    keeps_sums: bool = False
    stores_sums: bool = False
    loads_constants: bool = False
    barrier: bool = False

    def __post_init__(self) -> None:
        program_number(*self.program)
        for name, (_, _, bits, _) in FIELDS.items():
            if name != "program" and not 0 <= int(getattr(self, name)) < 1 << bits:
                raise RtlError(
                    f"{name} {getattr(self, name)} does not fit in {bits} bits of a vector descriptor; cut the pass"
                )
        if self.vectors < 1 or self.runs < 1:
            raise RtlError(
                f"a pass over {self.runs} runs of {self.vectors} vectors does nothing; give at least 1 of each"
            )
        if self.vectors * self.runs >= 1 << 24:
            raise RtlError(f"{self.vectors * self.runs} vectors are more than the unit counts, 2^24 - 1; cut the pass")
        if self.stores_sums and any(each.emits for each in ALL_PROGRAMS[self.program]):
            name = " ".join(map(str, self.program))
            raise RtlError(f"{name} writes results, so its sums cannot be stored; leave stores_sums out")

    def content(self) -> bytes:
        """The sixteen words as they lie in memory."""
        values = {each.name: getattr(self, each.name) for each in fields(self)} | {
            "program": program_number(*self.program)
        }
        words = [0] * WORDS
        for name, (word, low, _, _) in FIELDS.items():
            words[word] |= int(values[name]) << low
        return b"".join(word.to_bytes(4, "little") for word in words)


def descriptor_table() -> str:
    """The fields as a Markdown table."""
    lines = ["| word | bits | field | meaning |", "|---|---|---|---|"]
    for name, (word, low, bits, meaning) in FIELDS.items():
        places = str(low) if bits == 1 else f"{low + bits - 1}:{low}"
        lines.append(f"| {word} | {places} | {name} | {meaning} |")
    return "\n".join(lines)
