"""The simulated device counts what `acf.simulate` counts, and computes in bf16 and float32."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import acf
from acf import runtime
from acf.runtime.numbers import round_to_bf16
from acf.sim.registry import find_architecture
from acf.trace.op import PHASES
from tests.runtime.products import random_operands, run

WEIGHT = runtime.WeightBlocks.from_mask(np.arange(16).reshape(4, 4) % 3 > 0, (16, 16))
FORWARD = runtime.Product(phase="forward", rows=64, weight=WEIGHT, name="fc")


def cost_of_second_launch(device: runtime.Device, product: runtime.Product) -> runtime.Cost:
    """What a launch takes once its program is loaded, with operands that were copied in anew."""
    program = device.compile(product)
    for _ in range(2):
        run(device, program, random_operands(program))
    return [span.cost for span in device.timeline.spans if span.engine == "compute"][-1]


@pytest.mark.parametrize("architecture", ["acf-512", "tensordash", "sat"])
def test_cycles_are_those_of_the_simulated_trace(architecture: str) -> None:
    program = runtime.Program(FORWARD)
    x, blocks = (round_to_bf16(each) for each in random_operands(program))
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", x, WEIGHT.to_matrix(blocks).T)])
    expected = acf.simulate(trace, architecture)
    cost = cost_of_second_launch(runtime.Device("sim", architecture), FORWARD)
    assert cost.effectual_macs == expected.ops[0].effectual_macs
    assert cost.cycles == pytest.approx(expected.ops[0].cycles, rel=0.1)
    assert sum(cost.energy_j.values()) == pytest.approx(expected.products_energy_j, rel=0.1)


@pytest.mark.parametrize("phase", PHASES)
def test_results_are_within_bf16_of_the_product_of_bf16_operands(phase: str) -> None:
    device, reference = runtime.Device("sim"), runtime.Device("reference")
    program = device.compile(replace(FORWARD, phase=phase))
    operands = random_operands(program)
    found, expected = run(device, program, operands), run(reference, program, operands)
    np.testing.assert_allclose(found, expected, rtol=2**-8, atol=2**-8 * np.abs(expected).max())
    assert (found != expected).any()


def test_operands_of_fp32_are_rounded_to_bf16_before_they_are_multiplied() -> None:
    device = runtime.Device("sim")
    program = device.compile(replace(FORWARD, operand_dtype="fp32"))
    operands = random_operands(program)
    rounded = [round_to_bf16(each) for each in operands]
    np.testing.assert_array_equal(run(device, program, operands), run(device, program, rounded))


def test_the_first_launch_of_a_program_also_loads_it() -> None:
    device = runtime.Device("sim")
    program = device.compile(FORWARD)
    for _ in range(2):
        run(device, program, random_operands(program))
    first, second = (span.cost for span in device.timeline.spans if span.engine == "compute")
    assert first.seconds > second.seconds + device.properties.link.latency_s
    assert first.cycles > second.cycles


def test_an_operand_that_is_still_on_chip_is_not_read_from_dram_again() -> None:
    device = runtime.Device("sim")
    program = device.compile(FORWARD)
    x, weight = (device.upload(each) for each in random_operands(program))
    output = device.malloc(program.arguments[-1].nbytes)
    for _ in range(2):
        runtime.launch(program, [x, weight, output])
    runtime.memcpy(x, torch.ones(64, 64, dtype=torch.bfloat16))
    runtime.launch(program, [x, weight, output])
    device.synchronize()
    first, again, changed = (span.cost.dram_bytes for span in device.timeline.spans if span.engine == "compute")
    assert again < changed < first


def test_a_copy_overlaps_with_a_product_of_another_stream() -> None:
    device = runtime.Device("sim", link=runtime.HostLink(submission_s=0.0))
    program = device.compile(FORWARD)
    buffers = [device.malloc(argument.nbytes) for argument in program.arguments]
    began = device.timeline.host_s
    runtime.launch(program, buffers, device.stream())
    runtime.memcpy_async(device.malloc(4096), runtime.HostBuffer(4096), device.stream())
    device.synchronize()
    assert [span.start_s for span in device.timeline.spans] == [began, began]


def test_tiles_in_csc_form_have_an_index_too() -> None:
    _, spec = find_architecture("acf-512")
    bitmap, csc = (runtime.Device("sim", replace(spec, tile_format=form, name=form)) for form in ("bitmap", "csc"))
    program = csc.compile(FORWARD)
    assert program.fabric_products
    operands = random_operands(program)
    assert (run(csc, program, operands) == run(bitmap, bitmap.compile(FORWARD), operands)).all()
