"""Which library computes a 2:4 product depends on the GPU, the dtype, the shape and the setting alone."""

import pytest
import torch

from acf.errors import SparsityError
from acf.ops import dense_products
from acf.ops.semi_structured import Choice, Machine, choice, choose, library_for

BOTH = ("cusparselt", "cutlass")
HOPPER, AMPERE = Machine((9, 0), BOTH), Machine((8, 6), BOTH)
SHAPE = (4096, 11008)


@pytest.mark.parametrize("machine", [AMPERE, HOPPER, Machine((12, 0), ("cusparselt",))])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cusparselt_takes_16_bit_products_from_compute_capability_8(machine, dtype):
    assert choose(machine, dtype, SHAPE) == Choice("cusparselt", "")


@pytest.mark.parametrize(
    ("machine", "dtype", "shape", "reason"),
    [
        (Machine(None, ()), torch.bfloat16, SHAPE, "not on an NVIDIA GPU"),
        (Machine((7, 5), BOTH), torch.bfloat16, SHAPE, "compute capability 7.5 is below 8.0"),
        (Machine((8, 0), ("cutlass",)), torch.bfloat16, SHAPE, "this torch comes without cusparselt"),
        (HOPPER, torch.float32, SHAPE, "float32 products; float16 and bfloat16 are taken"),
        (HOPPER, torch.bfloat16, (4096, 100), "4096 x 100 are not multiples of 128"),
        (HOPPER, torch.bfloat16, (64, 4096), "64 x 4096 are not multiples of 128"),
    ],
)
def test_everything_else_stays_on_dense_products_for_a_reason(machine, dtype, shape, reason):
    assert choose(machine, dtype, shape) == Choice("", reason)


def test_the_automatic_choice_leaves_small_weights_masked_and_a_demand_does_not():
    assert "4096 x 4096 weights are faster masked" in choose(HOPPER, torch.bfloat16, (4096, 4096)).reason
    assert choose(HOPPER, torch.bfloat16, (4096, 4096), "cusparselt") == Choice("cusparselt", "")


def test_cutlass_is_for_compute_capability_8_and_only_on_demand():
    assert choose(AMPERE, torch.bfloat16, (64, 192), "cutlass") == Choice("cutlass", "")
    assert choose(HOPPER, torch.bfloat16, SHAPE, "cutlass") == Choice("", "compute capability 9.0 is above 8.x")


def test_the_setting_dense_forbids_every_library():
    assert choose(HOPPER, torch.bfloat16, SHAPE, "dense") == Choice("", "ACF_NM_KERNELS=dense")


def test_an_unknown_setting_is_refused_with_the_choices_there_are():
    with pytest.raises(SparsityError, match="ACF_NM_KERNELS 'cublas' is no choice; use one of auto, dense, cusparselt"):
        choose(HOPPER, torch.bfloat16, SHAPE, "cublas")


def test_a_library_that_is_demanded_and_cannot_be_had_is_an_error(monkeypatch):
    monkeypatch.setattr(choice, "SETTING", "cusparselt")
    with pytest.raises(SparsityError, match="ACF_NM_KERNELS=cusparselt cannot compute this layer: not on an NVIDIA"):
        library_for(torch.device("cpu"), torch.bfloat16, SHAPE)


def test_dense_products_keep_the_libraries_out(monkeypatch):
    device = torch.device("cpu")
    monkeypatch.setitem(choice._MACHINES, device, HOPPER)
    assert library_for(device, torch.bfloat16, SHAPE) == "cusparselt"
    with dense_products():
        assert library_for(device, torch.bfloat16, SHAPE) == ""
        assert choice.describe_layer(device, SHAPE).reason == "acf.ops.dense_products is active"
