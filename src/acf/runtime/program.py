"""Programs: a product, and for a fabric the descriptors and indices that its controllers walk, as one binary image.

The image is little-endian 32-bit words:

| part | words | content |
|---|---|---|
| header | 8 | magic "ACFP"; version; bytes of the image; words of the product; fabric products; fabric (2); CRC-32 |
| product | see `PRODUCT_FIELDS` | phase, number formats, sizes, geometry; coordinates of every block; name |
| each fabric product | 24, index words | `acf.lowering.descriptor`, then `acf.lowering.product_index` |

The CRC-32 is that of the image with zero in its place. ``fabric`` names the shape that the descriptors were made for,
0 if there are none: a portable program, which a fabric lowers when it is launched first.
"""

from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from acf.errors import AcfError
from acf.lowering import FabricShape
from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS, POLICIES, ProductDescriptor
from acf.runtime.errors import InvalidImageError
from acf.runtime.product import Argument, Product, WeightBlocks
from acf.trace.op import PHASES, TracedConv

Words = NDArray[np.uint32]

MAGIC = int.from_bytes(b"ACFP", "little")
VERSION = 1
HEADER_WORDS = 8
CRC_WORD = 7
DTYPES = ("fp32", "bf16")

PRODUCT_FIELDS = (
    "phase",
    "operand_dtype",
    "result_dtype",
    "has_conv",
    "rows",
    "weight_rows",
    "weight_columns",
    "block_height",
    "block_width",
    "blocks",
    *(
        f"{name}_{axis}"
        for name in ("input", "kernel", "stride", "padding", "dilation")
        for axis in ("height", "width")
    ),
    "name_bytes",
)
"""The words that begin the product's part, in order; geometry is zero without ``has_conv``. Then follow the block rows,
the block columns and the name in UTF-8, filled up with zeros."""


@dataclass(frozen=True, eq=False)
class FabricProduct:
    """One matrix multiplication for a fabric: the descriptor and the index that its front end decodes."""

    descriptor: ProductDescriptor
    index: Words

    def listing(self) -> str:
        """The words of the descriptor with their fields, and where the parts of the index begin."""
        words = self.descriptor.words()
        lines = []
        for number, word in enumerate(words[: max(at.word for at in FIELDS.values()) + 1]):
            named = ", ".join(f"{name} {_field(word, name)}" for name, at in FIELDS.items() if at.word == number)
            lines.append(f"  {number:02d}  {word:08x}  {named}")
        shown = " ".join(f"{word:08x}" for word in self.index[:8].tolist())
        more = " ..." if self.index.size > 8 else ""
        return "\n".join([*lines, f"  index  {self.index.size} words: {shown}{more}"])


@dataclass(frozen=True, eq=False)
class Program:
    """A product for a device; ``fabric_products`` are its matrix multiplications as the fabric ``fabric`` runs them.

    ``Program.empty()`` computes nothing. ``str(program)`` is an assembly listing.
    """

    product: Product | None
    fabric: int = 0
    fabric_products: tuple[FabricProduct, ...] = ()
    cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def empty(cls) -> "Program":
        """A program without arguments that computes nothing: its launch costs only the submission."""
        return cls(None)

    @property
    def name(self) -> str:
        """What the program is called on the timeline."""
        if self.product is None:
            return "empty"
        return f"{self.product.name} {self.product.phase}".strip()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Operands and result, in the order in which `launch` takes their buffers."""
        return () if self.product is None else self.product.arguments

    def to_bytes(self) -> bytes:
        """The image."""
        product = np.zeros(0, dtype=np.uint32) if self.product is None else _product_words(self.product)
        parts = [product]
        for each in self.fabric_products:
            parts += [np.array(each.descriptor.words(), dtype=np.uint32), each.index]
        body = np.concatenate(parts).astype("<u4").tobytes()
        low, high = self.fabric & 0xFFFFFFFF, self.fabric >> 32
        length = 4 * HEADER_WORDS + len(body)
        words = [MAGIC, VERSION, length, product.size, len(self.fabric_products), low, high, 0]
        words[CRC_WORD] = crc32(np.array(words, dtype="<u4").tobytes() + body)
        return np.array(words, dtype="<u4").tobytes() + body

    @classmethod
    def from_bytes(cls, image: bytes) -> "Program":
        """Read an image back; refuses one that is damaged, cut or of another version."""
        words = _checked_words(image)
        product_end = HEADER_WORDS + int(words[3])
        if product_end > words.size:
            raise InvalidImageError(f"the product of {int(words[3])} words ends beyond the program; it is damaged")
        try:
            product = _read_product(words[HEADER_WORDS:product_end]) if int(words[3]) else None
            products = _read_fabric_products(words[product_end:], int(words[4]))
        except InvalidImageError:
            raise
        except (AcfError, IndexError, ValueError) as error:
            raise InvalidImageError(f"the program does not decode ({error}); write it again with to_bytes") from error
        return cls(product, int(words[5]) | int(words[6]) << 32, products)

    def __str__(self) -> str:
        lines = [f".program {self.name}"]
        lines += [f".operand {each}" for each in self.arguments[:-1]]
        lines += [f".result {each}" for each in self.arguments[-1:]]
        lines.append(f".fabric {self.fabric:016x}" if self.fabric else ".portable")
        for number, each in enumerate(self.fabric_products):
            lines += [f"product {number}", each.listing()]
        return "\n".join(lines)


def fabric_number(shape: FabricShape) -> int:
    """A number of 64 bits that names a shape: programs run on fabrics of the shape they were compiled for."""
    text = ";".join(f"{item.name}={getattr(shape, item.name)}" for item in fields(FabricShape))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _field(word: int, name: str) -> int | str:
    at = FIELDS[name]
    value = word >> at.low & (1 << at.bits) - 1
    return POLICIES[value] if name == "policy" else value


def _product_words(product: Product) -> Words:
    weight, conv, name = product.weight, product.conv, product.name.encode()
    geometry = (0,) * 10
    if conv is not None:
        geometry = (*conv.input_size, *conv.kernel_size, *conv.stride, *conv.padding, *conv.dilation)
    values = (
        PHASES.index(product.phase),
        DTYPES.index(product.operand_dtype),
        DTYPES.index(product.result_dtype),
        conv is not None,
        product.rows,
        weight.rows,
        weight.columns,
        *weight.block_shape,
        weight.block_rows.size,
        *geometry,
        len(name),
    )
    text = np.frombuffer(name + bytes(-len(name) % 4), dtype="<u4")
    return np.concatenate((np.array(values, dtype=np.uint32), weight.block_rows, weight.block_columns, text)).astype(
        np.uint32
    )


def _checked_words(image: bytes) -> Words:
    """The words of an image whose header, length and checksum are right."""
    if len(image) < 4 * HEADER_WORDS or len(image) % 4:
        raise InvalidImageError(
            f"{len(image)} bytes are no program: one has at least {4 * HEADER_WORDS}, in words of 4; pass to_bytes()"
        )
    words = np.frombuffer(image, dtype="<u4").astype(np.uint32)
    if words[0] != MAGIC:
        raise InvalidImageError(f"the first word {int(words[0]):#010x} is not {MAGIC:#010x}, so this is no program")
    if words[1] != VERSION:
        raise InvalidImageError(f"program version {int(words[1])} is not {VERSION}; compile it with this release")
    if words[2] != len(image):
        raise InvalidImageError(f"the program says {int(words[2])} bytes and has {len(image)}; it was cut or joined")
    found = int(words[CRC_WORD])
    words[CRC_WORD] = 0
    expected = crc32(words.astype("<u4").tobytes())
    if found != expected:
        raise InvalidImageError(
            f"checksum {found:#010x} is not {expected:#010x}: the program is damaged; write it again"
        )
    return words


def _read_product(words: Words) -> Product:
    values = dict(zip(PRODUCT_FIELDS, words[: len(PRODUCT_FIELDS)].tolist(), strict=True))
    blocks, at = values["blocks"], len(PRODUCT_FIELDS)
    coordinates = words[at : at + 2 * blocks].astype(np.int32)
    text = words[at + 2 * blocks :].astype("<u4").tobytes()
    if coordinates.size != 2 * blocks or len(text) != values["name_bytes"] + -values["name_bytes"] % 4:
        raise InvalidImageError(f"the product has {words.size} words, not those of {blocks} blocks and its name")
    conv = None
    if values["has_conv"]:
        pairs: dict[str, Any] = {
            f"{key}_size" if key in ("input", "kernel") else key: (values[f"{key}_height"], values[f"{key}_width"])
            for key in ("input", "kernel", "stride", "padding", "dilation")
        }
        conv = TracedConv(**pairs)
    return Product(
        phase=PHASES[values["phase"]],
        rows=values["rows"],
        weight=WeightBlocks(
            values["weight_rows"],
            values["weight_columns"],
            (values["block_height"], values["block_width"]),
            coordinates[:blocks],
            coordinates[blocks:],
        ),
        conv=conv,
        operand_dtype=DTYPES[values["operand_dtype"]],
        result_dtype=DTYPES[values["result_dtype"]],
        name=text[: values["name_bytes"]].decode(),
    )


def _read_fabric_products(words: Words, count: int) -> tuple[FabricProduct, ...]:
    products, at = [], 0
    for _ in range(count):
        descriptor = ProductDescriptor.from_words(words[at : at + DESCRIPTOR_WORDS].tolist())
        at += DESCRIPTOR_WORDS + descriptor.index_words
        if at > words.size:
            raise InvalidImageError(f"an index of {descriptor.index_words} words ends beyond the program")
        products.append(FabricProduct(descriptor, words[at - descriptor.index_words : at]))
    if at != words.size:
        raise InvalidImageError(f"{words.size - at} words are left after {count} fabric products")
    return tuple(products)
