"""Only blocks that changed travel, as runs of neighbouring slots."""

import numpy as np
import torch

from acf.offloading.engine import ProductEngine
from acf.offloading.weights import ResidentWeight
from acf.runtime import Device, WeightBlocks


def test_neighbouring_changed_blocks_are_one_copy() -> None:
    device = Device("reference")
    engine = ProductEngine(device)
    weight, blocks = ResidentWeight(engine), WeightBlocks.from_mask(np.ones((2, 3), dtype=bool), (4, 4))
    packed = torch.arange(96.0).reshape(6, 4, 4)
    weight.send(packed, blocks)
    packed[[1, 2, 4]] += 100
    matrix = weight.send(packed, blocks)
    device.synchronize()
    assert [span.nbytes for span in device.timeline.spans] == [192, 64, 32]
    assert np.array_equal(device.download(matrix.buffer, (6, 4, 4), "bf16"), packed.numpy())


def test_a_change_below_the_rounding_of_bf16_sends_nothing() -> None:
    device = Device("reference")
    weight, blocks = ResidentWeight(ProductEngine(device)), WeightBlocks.dense(4, 4)
    weight.send(torch.ones(1, 4, 4), blocks)
    weight.send(torch.full((1, 4, 4), 1.0001), blocks)
    device.synchronize()
    assert len(device.timeline.spans) == 1
