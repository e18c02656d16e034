"""A layer from memory to memory: cycles of the gates beside those of the model with the same memory port."""

from dataclasses import replace

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.device.host.layer_runs import layer_table, run_layers
from acf.rtl.device.host.simulation import DeviceSimulation, memory_beats
from acf.rtl.verify.lockstep.products import random_product
from tests.rtl.device.programs import ONE_SCU

AXI = AxiSpec(data_bits=64, address_bits=20)


def test_the_gates_take_the_cycles_of_the_model_with_the_same_port_within_a_tenth() -> None:
    sizes, product = replace(ONE_SCU, command_depth=16), random_product(16, tile=8, most=2)
    device = DeviceSimulation.of(sizes, AXI, memory_beats(sizes, AXI, product), 5, "pysim")
    (run,) = run_layers(device, {"random": product})
    assert run.run.is_equal
    assert run.on_chip_cycles < run.model_cycles
    assert 0.9 < run.ratio < 1.1
    assert f"| {run.run.cycles:,} | {run.model_cycles:,} | {run.ratio:.3f} |" in layer_table([run])
