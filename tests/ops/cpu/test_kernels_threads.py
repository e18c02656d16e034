"""Threads: those of a kernel, and those of its caller."""

import threading

import pytest
import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from tests.ops.cpu.layers import assert_close, layer, needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_thread_count_is_right_and_gives_the_same_bits_twice(threads: int) -> None:
    x, output_grad, weight, topology = layer(tokens=333)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        results = [
            (
                block_linear_forward(x, weight, None, *topology),
                block_linear_input_grad(output_grad, weight, *topology),
                block_linear_weight_grad(output_grad, x, *topology, x.dtype),
            )
            for _ in range(2)
        ]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))
    expected = reference.linear_weight_grad(output_grad.double(), x.double(), topology)
    assert_close(results[0][2], expected, torch.float32)


def test_threads_of_the_caller_do_not_disturb_each_other() -> None:
    x, output_grad, _, topology = layer(tokens=300)
    expected = block_linear_weight_grad(output_grad, x, *topology, x.dtype)
    results: list[Tensor] = []
    workers = [
        threading.Thread(
            target=lambda: results.extend(
                block_linear_weight_grad(output_grad, x, *topology, x.dtype) for _ in range(20)
            )
        )
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 60
    assert all(torch.equal(result, expected) for result in results)
