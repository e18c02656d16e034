"""The input gradient over the weight that the forward pass has in memory."""

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.host.image import lay_out
from acf.rtl.device.host.shared_tiles import lay_out_transposed, transposed_commands
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.verify.lockstep.products import Product
from tests.rtl.device.programs import ONE_SCU

AXI = AxiSpec(data_bits=64, address_bits=20)


def test_the_input_gradient_reads_the_weight_of_the_forward_pass_transposed() -> None:
    rng = np.random.default_rng(0)
    x, gradient, weight = (bf16_bits(rng.standard_normal(shape)) for shape in ((1, 16), (1, 8), (16, 8)))
    forward = Product(x, weight).encode(ONE_SCU)
    backward = Product(gradient, np.ascontiguousarray(weight.T)).encode(ONE_SCU)
    device = DeviceSimulation.of(ONE_SCU, AXI, 1 << 13, 5, "pysim")
    image = lay_out(forward, AXI, channel_bytes=device.channel_bytes)
    behind = lay_out_transposed(backward, forward, image, AXI, device.channel_bytes)
    assert transposed_commands(behind, backward, AXI) == 2
    assert device.run_image(image, forward).is_equal
    assert device.run_image(behind, backward).is_equal
