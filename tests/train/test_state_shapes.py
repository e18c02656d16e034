"""What the shape of a state tensor says about the blocks of a packed weight, and where it says too little."""

from hypothesis import assume, given
from hypothesis import strategies as st

from acf.train.state_shapes import SlotRelation, StateShape, possible_relations, remaining_relations

SIZES = st.integers(2, 40)
PER_SLOT = {
    "full": lambda n, h, w: (n, h, w),
    "row factor": lambda n, h, w: (n, h),
    "column factor": lambda n, h, w: (n, w),
    "row factor with its axis": lambda n, h, w: (n, h, 1),
    "column factor with its axis": lambda n, h, w: (n, 1, w),
    "one number": lambda n, h, w: (n,),
    "flat": lambda n, h, w: (n * h * w,),
    "matrix of slots": lambda n, h, w: (n, h * w),
    "matrix of rows": lambda n, h, w: (n * h, w),
    "factor of the matrix of rows": lambda n, h, w: (n * h,),
}
SHARED = {
    "step": lambda n, h, w: (),
    "step as a vector": lambda n, h, w: (1,),
    "row accumulator": lambda n, h, w: (1, h, 1),
    "row preconditioner": lambda n, h, w: (h, h),
    "column preconditioner": lambda n, h, w: (w, w),
}
MIXED = {"slot preconditioner": lambda n, h, w: (n, n), "matrix preconditioner": lambda n, h, w: (n * h, n * h)}
LAYOUTS = {
    **dict.fromkeys(PER_SLOT.values(), SlotRelation.PER_SLOT),
    **dict.fromkeys(SHARED.values(), SlotRelation.SHARED),
    **dict.fromkeys(MIXED.values(), SlotRelation.MIXED),
}


@given(st.sampled_from(list(LAYOUTS)), SIZES, SIZES, SIZES)
def test_the_true_relation_is_always_among_the_possible_ones(layout, n, h, w):
    assert LAYOUTS[layout] in possible_relations(layout(n, h, w), (n, h, w))


@given(st.sampled_from(list(LAYOUTS)), SIZES, SIZES, SIZES, SIZES)
def test_layers_with_different_numbers_of_blocks_tell_a_coincidence_from_a_rule(layout, n, m, h, w):
    """Whatever remains is the truth, or too much to decide; never one wrong relation."""
    assume(n != m)
    entries = [StateShape(layout(count, h, w), (count, h, w), True) for count in (n, m)]
    for remaining in remaining_relations(entries):
        assert LAYOUTS[layout] in remaining


@given(st.sampled_from(list(LAYOUTS)), SIZES, SIZES)
def test_a_layer_whose_block_count_is_its_block_size_is_decided_by_another_layer(layout, n, m):
    assume(m not in (n, n * n) and m * n != n and n not in (m * n, m * n * n))
    entries = [StateShape(layout(count, n, n), (count, n, n), True) for count in (n, m)]
    assert all(remaining == {LAYOUTS[layout]} for remaining in remaining_relations(entries))


@given(SIZES, SIZES, st.integers(2, 5))
def test_a_state_of_one_size_for_all_parameters_is_shared_even_if_there_are_as_many_blocks(size, block, rank):
    """A histogram of as many bins as the layer has blocks, which a bias of another size has as well."""
    bias = size * block + 1
    entries = [StateShape((size,), (size, block, block), True), StateShape((size,), (bias,), False)]
    assume(max(size * block * block, bias) >= 2 * min(size * block * block, bias))
    assert remaining_relations(entries)[0] == {SlotRelation.SHARED}
    assert remaining_relations(entries[:1])[0] >= {SlotRelation.PER_SLOT}  # one layer alone cannot tell


def test_a_state_that_follows_from_no_reduction_has_no_relation():
    assert possible_relations((12,), (8, 4, 4)) == frozenset()
    assert possible_relations((8, 3), (8, 4, 4)) == frozenset()
    assert possible_relations((8, 4, 4, 2), (8, 4, 4)) == frozenset()
