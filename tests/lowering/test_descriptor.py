"""The descriptor of a product: its fields and words."""

import numpy as np
import pytest

from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.lowering.descriptor import DESCRIPTOR_BYTES, FIELDS, ProductDescriptor, descriptor_table
from acf.lowering.pipeline import lower_stages
from acf.lowering.product_index import build_index
from tests.lowering.random_products import fabric


def some_descriptor() -> ProductDescriptor:
    rng = np.random.default_rng(0)
    shape = fabric(mesh_rows=2, mesh_columns=2)
    lowered = lower_stages(Gemm(rng.random((300, 64)) < 0.5, rng.random((64, 48)) < 0.5), shape)
    return build_index(lowered.product, lowered.mapping, shape).descriptor


def test_a_descriptor_is_read_back_from_its_words() -> None:
    descriptor = some_descriptor()
    words = descriptor.words()
    assert 4 * len(words) == DESCRIPTOR_BYTES
    assert ProductDescriptor.from_words(words) == descriptor


def test_no_two_fields_share_a_bit() -> None:
    bits = [(field.word, bit) for field in FIELDS.values() for bit in range(field.low, field.low + field.bits)]
    assert len(bits) == len(set(bits))
    assert max(bit for _, bit in bits) < 32


def test_another_version_is_refused() -> None:
    words = some_descriptor().words()
    with pytest.raises(ArchitectureError, match="descriptor version 0 is not 1"):
        ProductDescriptor.from_words([words[0] & ~0xFF, *words[1:]])


def test_a_value_beyond_its_field_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="k_tiles 65536 does not fit in the 16 bits of a descriptor"):
        ProductDescriptor(**(vars(some_descriptor()) | {"k_tiles": 1 << 16}))


def test_the_table_names_every_field() -> None:
    assert all(f"| {name} |" in descriptor_table() for name in FIELDS)
