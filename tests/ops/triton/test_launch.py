"""Launching a problem again gives the launcher what Triton gave it, with new addresses, or leaves it to Triton."""

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

import torch
import triton
from torch import Tensor

from acf.ops import dense_products
from acf.ops.triton import conv, product, weight_grad
from acf.ops.triton import launch as launching
from acf.ops.triton.launch import Tiled, known_launch, launch
from acf.ops.triton.tuning import LaunchConfig
from acf.sparse import BlockLayout, BlockTopology


class FakeKernel:
    """A kernel ``(x, out, rows, block)`` that counts Triton's launches and keeps the launcher's arguments."""

    arg_names = ("x", "out", "rows", "block")

    def __init__(self, scratch_bytes: int = 0) -> None:
        self.fn = object()
        self.by_triton = 0
        self.direct: list[tuple[Any, ...]] = []
        launcher = self.record

        def launch_with_descriptors(*args: Any) -> None:
            launcher(*args)

        self.compiled = SimpleNamespace(
            function=77,
            packed_metadata=(4, 1, 1024),
            metadata=SimpleNamespace(tensordesc_meta=[{"swizzle": 1}]),
            run=SimpleNamespace(
                launch=launch_with_descriptors,
                global_scratch_size=scratch_bytes,
                profile_scratch_size=0,
                launch_cooperative_grid=False,
                launch_pdl=False,
            ),
        )

    def record(self, *args: Any) -> None:
        self.direct.append(args)

    def __getitem__(self, grid: tuple[int]) -> Any:
        def run(*args: Any, **constants: Any) -> Any:
            self.by_triton += 1
            return self.compiled

        return run


FIRST_WITH_LISTS_OF_HOOKS = (3, 5)
if tuple(map(int, triton.__version__.split(".")[:2])) < FIRST_WITH_LISTS_OF_HOOKS:
    pytest.skip(f"the launcher of Triton {triton.__version__} is not called directly", allow_module_level=True)


@pytest.fixture(autouse=True)
def _a_device_with_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("triton.backends.nvidia.driver")
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    monkeypatch.setattr(launching, "_PREPARED", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5, raising=False)
    monkeypatch.setattr(
        driver, "make_tensordesc_arg", lambda source, layout: ["map", source.base.data_ptr(), *source.shape]
    )


def matrices() -> tuple[Tensor, Tensor]:
    return torch.zeros(64, 32), torch.zeros(64, 32)


def launch_on(kernel: FakeKernel, x: Tensor, out: Tensor, block: int = 16) -> Any:
    return launch(kernel, 3, (Tiled(x, [16, 16]), out), (64,), block=block, num_warps=4)


def test_the_second_launch_gives_the_launcher_the_new_addresses_and_all_else_unchanged():
    kernel = FakeKernel()
    launch_on(kernel, *matrices())
    x, out = matrices()
    assert launch_on(kernel, x, out) is not None
    assert kernel.by_triton == 1
    flags = (77, False, False, None, None, (4, 1, 1024), None, None, None)
    assert kernel.direct == [(3, 1, 1, 5, *flags, "map", x.data_ptr(), 64, 32, out.data_ptr(), 64, 16)]


def test_another_constant_size_or_dtype_goes_through_triton():
    kernel = FakeKernel()
    x, out = matrices()
    launch_on(kernel, x, out)
    launch_on(kernel, x, out, block=32)
    launch_on(kernel, x[:32], out)
    launch_on(kernel, x.half(), out)
    launch_on(kernel, x, out.half())
    assert (kernel.by_triton, len(kernel.direct)) == (5, 0)


def test_an_operand_off_the_boundary_goes_through_triton():
    kernel = FakeKernel()
    x, out = matrices()
    launch_on(kernel, x, out)
    launch_on(kernel, x, torch.zeros(1 + 64 * 32)[1:].view(64, 32))
    assert (kernel.by_triton, len(kernel.direct)) == (2, 0)


def test_a_profiler_that_listens_to_triton_hears_every_launch(monkeypatch: pytest.MonkeyPatch):
    kernel = FakeKernel()
    launch_on(kernel, *matrices())
    monkeypatch.setattr(triton.knobs.runtime.launch_enter_hook, "calls", [print])
    launch_on(kernel, *matrices())
    assert (kernel.by_triton, len(kernel.direct)) == (2, 0)


@pytest.mark.parametrize("version", ["3.4.0", "3.7.0", "4.0.0"])
def test_a_triton_whose_launcher_was_not_read_launches_everything(monkeypatch: pytest.MonkeyPatch, version: str):
    monkeypatch.setattr(triton, "__version__", version)
    kernel = FakeKernel()
    assert [launch_on(kernel, *matrices()) for _ in range(2)] == [None, None]
    assert kernel.by_triton == 2


def test_a_kernel_that_needs_scratch_memory_is_launched_by_triton():
    kernel = FakeKernel(scratch_bytes=64)
    assert [launch_on(kernel, *matrices()) for _ in range(2)] == [None, None]


def test_descriptions_of_old_addresses_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launching, "REMEMBERED_ADDRESSES", 3)
    kernel, kept = FakeKernel(), [matrices() for _ in range(9)]
    prepared = [launch_on(kernel, x, out) for x, out in kept][-1]
    assert len(prepared._operands[0].by_address) <= 3


TOPOLOGY = BlockTopology.build(BlockLayout(64, 32, 16, 16), torch.tensor([3, 0, 1]), torch.tensor([0, 1, 1]))


@pytest.mark.parametrize("by_input", [False, True])
@pytest.mark.parametrize("kernel", ["gather", "transposed"])
def test_a_known_weight_gradient_is_launched_with_the_operands_of_the_first(
    monkeypatch: pytest.MonkeyPatch, kernel: str, by_input: bool
):
    monkeypatch.setattr(weight_grad, "transposed", lambda tensor: tensor)
    config = LaunchConfig(kernel, by_input=by_input)
    launched: list[tuple[Tensor, ...]] = []
    launch_parts = lambda *operands: launched.append(operands) or True  # noqa: E731
    known = weight_grad.PreparedWeightGrad(config, 1, False, launch_parts, None, None)
    output_grad, x, out = torch.zeros(8, 64), torch.zeros(8, 32), torch.zeros(3, 16, 16)
    assert known(output_grad, x, out, None, TOPOLOGY)
    first = weight_grad.owners_of(TOPOLOGY, output_grad, x, config).operands(out)
    first += (out,) if kernel == "gather" else ()  # in the place of a bias gradient
    assert [id(operand) for operand in launched[0]] == [id(operand) for operand in first]


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "input_grad"])
def test_a_known_product_is_launched_with_the_walk_of_its_pass(monkeypatch: pytest.MonkeyPatch, forward: bool):
    launched: list[tuple[Tensor, ...]] = []
    x, weight = torch.zeros(8, 32 if forward else 64), torch.zeros(3, 16, 16)
    groups = 4 if forward else 2
    key = (forward, x.shape, weight.shape, groups, x.dtype, weight.dtype, None, "ieee", -1)
    known = product.PreparedProduct(lambda *operands: launched.append(operands) or True, transposes=False)
    monkeypatch.setattr(product, "_PREPARED", {key: known})
    run = product.linear if forward else product.linear_input_grad
    assert run(x, weight, *((None,) if forward else ()), *TOPOLOGY).shape == (8, 16 * groups)
    walk = product.walk_of(TOPOLOGY, forward)
    assert [id(operand) for operand in launched[0][4:]] == [id(tensor) for tensor in walk]


def convolution_passes() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Each pass of a 3 x 3 convolution from 32 to 64 channels with its arguments, channels last."""
    layout = BlockLayout(64, 9 * 32, 16, 16)
    topology = BlockTopology.build(layout, torch.tensor([3, 0, 1]), torch.tensor([0, 17, 4]))
    x, output_grad = (
        torch.zeros(2, channels, 6, 5).contiguous(memory_format=torch.channels_last) for channels in (32, 64)
    )
    weight, pairs = torch.zeros(3, 16, 16), ([3, 3], [1, 1], [1, 1], [1, 1])
    return {
        "forward": (conv.conv2d, (x, weight, None, *topology, *pairs)),
        "input_grad": (conv.conv2d_input_grad, (output_grad, weight, *topology, list(x.shape), *pairs)),
        "weight_grad": (conv.conv2d_weight_grad, (output_grad, x, *topology, *pairs, x.dtype)),
    }


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("kernel", ["gather", "descriptor"])
@pytest.mark.parametrize("name", ["forward", "input_grad", "weight_grad"])
def test_a_known_convolution_is_launched_with_the_operands_of_the_first(
    monkeypatch: pytest.MonkeyPatch, name: str, kernel: str, splits: int
):
    run, arguments = convolution_passes()[name]
    launches: dict[str, list[list[Tensor]]] = {"by launch": [], "prepared": []}

    def prepared(*operands: Tensor) -> bool:
        launches["prepared"].append(list(operands))
        return True

    def launched(kernel: Any, programs: int, operands: Any, sizes: Any, **constants: Any) -> Any:
        launches["by launch"].append([o.tensor if isinstance(o, Tiled) else o for o in operands])
        return prepared

    for module in (conv, weight_grad):
        monkeypatch.setattr(module, "launch", launched)
    monkeypatch.setattr(conv, "_PREPARED", {})
    monkeypatch.setattr(conv, "_PREPARED_WEIGHT_GRADS", {})
    config = LaunchConfig(kernel, tile=16, depth=16, splits=splits)
    monkeypatch.setattr(conv.TUNER, "choose", lambda *rest: config)
    monkeypatch.setattr(conv.TUNER, "remembers", lambda signature: True)

    first = run(*arguments)
    expected = launches["by launch"].copy()
    launches["by launch"].clear()
    second = run(*arguments)
    merging = launches["by launch"]  # the input gradient merges the lists of its taps anew
    assert (len(expected), len(merging)) == (
        {"input_grad": 2, "weight_grad": splits}.get(name, 1),
        name == "input_grad",
    )

    known = {argument.data_ptr() for argument in arguments if isinstance(argument, Tensor)}
    for before, now in zip(expected[len(merging) :], launches["prepared"], strict=True):
        assert [operand.numel() for operand in now] == [operand.numel() for operand in before]
        addresses = [operand.data_ptr() if operand.data_ptr() in known else None for operand in before]
        assert [operand.data_ptr() if operand.data_ptr() in known else None for operand in now] == addresses
    assert (second.shape, second.stride()) == (first.shape, first.stride())


def test_a_launch_that_is_known_rests_within_dense_products() -> None:
    assert known_launch({"a problem": 7}, "a problem") == 7
    with dense_products():
        assert known_launch({"a problem": 7}, "a problem") is None
