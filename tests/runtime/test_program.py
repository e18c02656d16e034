"""Programs as bytes: what is written is read again, and anything else is refused."""

from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acf import runtime
from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.rtl.design.fabric.shapes import SMALL_SHAPE
from acf.runtime.compile import compile_product
from acf.runtime.program import CRC_WORD, HEADER_WORDS, PRODUCT_FIELDS
from acf.trace.op import PHASES
from tests.runtime.products import FILTERS, SPARSE, STRIDED

LINEAR = runtime.Product(phase="forward", rows=9, weight=SPARSE, name="block 1 \u2192 fc", result_dtype="bf16")
CONVOLUTION = runtime.Product(phase="input_grad", rows=2, weight=FILTERS, conv=STRIDED, operand_dtype="fp32")


@st.composite
def programs(draw: st.DrawFn) -> runtime.Program:
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    mask = np.array(draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns)))
    product = runtime.Product(
        phase=draw(st.sampled_from(PHASES)),
        rows=draw(st.integers(1, 20)),
        weight=runtime.WeightBlocks.from_mask(mask.reshape(rows, columns), draw(st.sampled_from(((8, 8), (4, 16))))),
        name=draw(st.text(max_size=9)),
    )
    return compile_product(product, SMALL_SHAPE, walked=draw(st.booleans()))


@settings(max_examples=25, deadline=None)
@given(programs())
def test_a_program_is_read_as_it_was_written(program: runtime.Program) -> None:
    again = runtime.Program.from_bytes(program.to_bytes())
    assert again.to_bytes() == program.to_bytes()
    assert again.arguments == program.arguments
    assert str(again) == str(program)


@pytest.mark.parametrize("product", [LINEAR, CONVOLUTION], ids=["linear", "convolution"])
def test_the_words_for_the_fabric_are_in_the_image(product: runtime.Product) -> None:
    program = compile_product(product, SMALL_SHAPE)
    words = np.frombuffer(program.to_bytes(), dtype="<u4")
    at = HEADER_WORDS + int(words[3])
    for each in program.fabric_products:
        assert words[at : at + DESCRIPTOR_WORDS].tolist() == each.descriptor.words()
        at += DESCRIPTOR_WORDS + each.descriptor.index_words
    assert at == words.size


def test_a_program_is_listed_in_words_and_fields() -> None:
    listing = str(compile_product(LINEAR, SMALL_SHAPE, walked=True)).splitlines()
    assert listing[:4] == [
        ".program block 1 \u2192 fc forward",
        ".operand x bf16 [9, 24]",
        ".operand weight bf16 [4, 8, 8]",
        ".result output bf16 [9, 16]",
    ]
    assert any(line.startswith("  00  08000001  version 1, split_k 0, swapped 0") for line in listing)
    assert "  01  00000009  rows 9" in listing
    assert str(runtime.Program.empty()) == ".program empty\n.portable"


@settings(max_examples=60)
@given(st.data())
def test_every_flipped_bit_and_every_cut_is_found(data: st.DataObject) -> None:
    image = bytearray(compile_product(LINEAR, SMALL_SHAPE).to_bytes())
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(image) - 1))
        image[bit // 8] ^= 1 << bit % 8
    else:
        del image[data.draw(st.integers(0, len(image) - 1)) :]
    with pytest.raises(runtime.InvalidImageError):
        runtime.Program.from_bytes(bytes(image))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "0 bytes are no program"), (b"\0" * 32, "is not 0x50464341, so this is no program")],
)
def test_what_is_no_program_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(runtime.InvalidImageError, match=message):
        runtime.Program.from_bytes(content)


def test_another_version_is_refused() -> None:
    image = bytearray(runtime.Program.empty().to_bytes())
    image[4] = 9
    with pytest.raises(runtime.InvalidImageError, match="program version 9 is not 1"):
        runtime.Program.from_bytes(bytes(image))


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        (3, 10**6, "the product of 1000000 words ends beyond the program"),
        (3, 5, "the program does not decode"),
        (4, 0, "words are left after 0 fabric products"),
        (4, 2, "the program does not decode|ends beyond the program"),
        (HEADER_WORDS + PRODUCT_FIELDS.index("blocks"), 3, "not those of 3 blocks and its name"),
        (HEADER_WORDS + PRODUCT_FIELDS.index("phase"), 99, "the program does not decode"),
    ],
)
def test_lengths_and_fields_that_contradict_each_other_are_refused_though_the_checksum_is_right(
    word: int, value: int, message: str
) -> None:
    words = np.frombuffer(compile_product(LINEAR, SMALL_SHAPE).to_bytes(), dtype="<u4").copy()
    words[word], words[CRC_WORD] = value, 0
    words[CRC_WORD] = crc32(words.tobytes())
    with pytest.raises(runtime.InvalidImageError, match=message):
        runtime.Program.from_bytes(words.tobytes())
