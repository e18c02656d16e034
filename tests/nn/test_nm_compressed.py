"""2:4 linear layers through compressed weights, against masked dense products.

The products of the library are replaced: by ones that read CUTLASS's format, or by dense ones in float64.
"""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.sparse._semi_structured_conversions import sparse_semi_structured_to_dense_cutlass

import acf
from acf.nn import NMSparsity, sparsify_
from acf.ops.semi_structured import choice, libraries
from acf.ops.semi_structured.libraries import Library, cutlass_compress, cutlass_parts

SPECS = {
    "bdwp": NMSparsity(2, 4),
    "bdwp with decay": NMSparsity(2, 4, decay=0.1),
    "sr-ste": NMSparsity(2, 4, method="sr-ste", decay=0.1),
    "sdgp": NMSparsity(2, 4, method="sdgp"),
    "transposable": NMSparsity(2, 4, method="sr-ste", decay=0.1, transposable=True),
}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def multiply_unpacked(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    return x @ sparse_semi_structured_to_dense_cutlass(*cutlass_parts(packed)).T


class Calls(list[str]):
    """The calls to the library so far."""


@pytest.fixture(params=["cutlass"])
def calls(request, monkeypatch) -> Calls:
    """The CPU as a GPU with a library: CUTLASS's format for 16-bit types, or dense copies for float64."""
    calls = Calls()
    compress, multiply = (
        (cutlass_compress, multiply_unpacked)
        if request.param == "cutlass"
        else (torch.clone, lambda x, packed: x @ packed.T)
    )

    def logged(name, function):
        return lambda *args: (calls.append(name), function(*args))[1]

    monkeypatch.setattr(choice, "DTYPES", (torch.bfloat16, torch.float64))
    monkeypatch.setattr(choice, "LEAST_WEIGHTS", 0)
    monkeypatch.setitem(choice._MACHINES, torch.device("cpu"), choice.Machine((9, 0), ("cusparselt",)))
    library = Library(logged("compress", compress), logged("multiply", multiply))
    monkeypatch.setitem(libraries.LIBRARIES, "cusparselt", library)
    return calls


exact = pytest.mark.parametrize("calls", ["float64"], indirect=True)


def model_of(spec: NMSparsity, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128, bias=False)).to(dtype)
    sparsify_(model, spec)
    return model


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = model(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])]


@exact
@every_spec
def test_output_and_gradients_are_those_of_masked_dense_products(spec, calls):
    model, x = model_of(spec), torch.randn(2, 3, 128, dtype=torch.float64)
    found = gradients(model, x)
    sparse_products = (spec.masks.forward_dim is not None) + (spec.method != "sr-ste" or spec.transposable)
    assert calls.count("multiply") == 2 * sparse_products
    with acf.ops.dense_products():
        expected = gradients(model, x)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@exact
@every_spec
def test_second_derivatives_are_those_of_masked_dense_products(spec, calls):
    model, x = model_of(spec), torch.randn(3, 128, dtype=torch.float64, requires_grad=True)

    def penalty_gradients() -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(model(x).square().sum(), [x, model[0].weight], create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), [x, *model.parameters()])

    found = penalty_gradients()
    assert "multiply" in calls
    with acf.ops.dense_products():
        expected = penalty_gradients()
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@exact
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, on the first jvp
def test_transforms_and_forward_mode_take_the_dense_products(calls):
    model, x = model_of(SPECS["bdwp"]), torch.randn(3, 128, dtype=torch.float64)
    torch.func.jvp(model, (x,), (x,))
    torch.func.vmap(model)(x)
    assert not calls


@every_spec
def test_autocast_multiplies_in_bfloat16_and_keeps_float32_gradients(spec, calls):
    model, x = model_of(spec, torch.float32), torch.randn(5, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradients(model, x)
    assert calls
    assert found[0].dtype is torch.bfloat16
    assert all(gradient.dtype is torch.float32 for gradient in found[1:])
    with torch.autocast("cpu", dtype=torch.bfloat16), acf.ops.dense_products():
        expected = gradients(model, x)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0.02, atol=0.02 * theirs.abs().max().item())


def test_float32_without_autocast_stays_on_dense_products(calls):
    gradients(model_of(SPECS["bdwp"], torch.float32), torch.randn(5, 128))
    assert not calls


@exact
def test_the_weight_is_compressed_once_per_update_for_every_kind_of_pass(calls):
    model, x = model_of(SPECS["bdwp"]), torch.randn(4, 128, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        calls.clear()
        with torch.inference_mode():
            model(x)
        for _ in range(2):
            model(x).sum().backward()
        assert calls.count("compress") == 4  # two layers, forward and input gradient
        found = model(x)
        with acf.ops.dense_products():
            torch.testing.assert_close(found, model(x))
        optimizer.step()
        optimizer.zero_grad()


@exact
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.load_state_dict({name: value + 1.0 for name, value in model.state_dict().items()}),
        lambda model: (model[0].weight.data.normal_(), model[0].refresh_masks()),
        lambda model: nn.init.normal_(model[2].weight),
        lambda model: model.float().double(),
    ],
    ids=["checkpoint", "data and refresh", "in place", "dtype"],
)
def test_a_changed_weight_is_compressed_anew(change, calls):
    model, x = model_of(SPECS["bdwp"]), torch.randn(4, 128, dtype=torch.float64)
    model(x)
    change(model)
    found = model(x)
    with acf.ops.dense_products():
        torch.testing.assert_close(found, model(x))


@exact
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_compresses_its_own_weight_and_borrowed_weights_leave_no_trace(duplicate, calls):
    model, x = model_of(SPECS["bdwp"]), torch.randn(4, 128, dtype=torch.float64)
    expected = model(x)
    twin = duplicate(model)
    with torch.no_grad():
        twin[0].weight.normal_()
    borrowed = {name: value.detach() for name, value in twin.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(model, borrowed, x), twin(x))
    assert torch.equal(model(x), expected)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own doing
@pytest.mark.parametrize("backend", ["aot_eager"])
@pytest.mark.parametrize("name", ["sr-ste", "transposable"])
def test_a_compiled_model_is_one_graph_that_compresses_at_every_run(name, backend, calls):
    torch._dynamo.reset()
    model, x = model_of(SPECS[name], torch.float32), torch.randn(8, 128)
    counter = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter if backend == "eager" else backend)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            calls.clear()
            found = gradients(compiled, x)
            assert calls.count("compress") >= 2
            expected = gradients(model, x)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0.02, atol=0.02 * theirs.abs().max().item())
        nn.init.normal_(model[0].weight, std=0.1)
    assert counter.frame_count == (1 if backend == "eager" else 0)
    torch._dynamo.reset()


def test_the_summary_says_how_each_layer_multiplies(calls):
    assert [str(layer) for layer in sparsify_(nn.Sequential(nn.Linear(128, 128)), SPECS["sr-ste"]).sparse] == [
        "0: 2:4 sr-ste (50.0% sparse forward), 2:4 products by cusparselt in the forward product (the input gradient "
        "is dense: its weight is not 2:4 along the outputs), for float16 and bfloat16"
    ]
    summary = sparsify_(nn.Sequential(nn.Linear(128, 64), nn.Linear(64, 128)), SPECS["transposable"])
    assert str(summary.sparse[0]) == (
        "0: 2:4 transposable sr-ste (50.0% sparse forward), dense products: 64 x 128 are not multiples of 128"
    )


def test_without_a_gpu_the_summary_says_so():
    summary = sparsify_(nn.Sequential(nn.Linear(128, 128)), SPECS["bdwp"])
    assert str(summary) == "0: 2:4 bdwp (50.0% sparse forward), dense products: not on an NVIDIA GPU"


def test_an_input_that_is_no_tensor_is_refused_by_its_type():
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, NMSparsity(n=2, m=4))
    with pytest.raises(acf.errors.ArgumentError, match=r"the input is 'text', of type str; pass a torch\.Tensor"):
        model("text")
