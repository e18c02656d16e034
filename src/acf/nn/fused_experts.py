"""Experts of Hugging Face transformers, whose weights are parameters of one module, as layers of their own and back.

A model keeps such modules while it is dense. `unfused_experts` puts an `UnfusedExperts` in the place of each while
layers are chosen and replaced; where a layer became sparse it stays, elsewhere the original returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from acf.errors import TopologyError
from acf.nn.expert_linear import ExpertLinear
from acf.nn.experts import Routing


class FusedForm(ABC):
    """A form of fused experts: which modules have it, their layers, and the forward pass; without state.

    A layer has the name of its weight; its bias, if it has one, is called ``{name}_bias``.
    """

    @abstractmethod
    def fits(self, module: Any) -> bool:
        """Whether the module has this form, by its class and attributes."""

    @abstractmethod
    def layer_names(self, module: Any) -> tuple[str, str]:
        """The names of the first and the second layer."""

    @abstractmethod
    def is_input_major(self, module: Any) -> bool:
        """Whether weights are ``[experts, in, out]``."""

    @abstractmethod
    def forward(self, original: Any, first: nn.Module, second: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        """What the original computes, with these layers for its weights."""

    def layers(self, module: nn.Module) -> dict[str, ExpertLinear]:
        """The layers by name, made of the module's own parameters."""
        parameters, transposed = module._parameters, self.is_input_major(module)
        return {
            name: ExpertLinear.of(parameters[name], parameters.get(f"{name}_bias"), transposed)  # type: ignore[arg-type]
            for name in self.layer_names(module)
        }


class ExpertsInterface(FusedForm):
    """The classes for which transformers has grouped implementations: Mixtral, Qwen, DeepSeek, GPT-OSS and others.

    Their decorator ``use_experts_implementation`` notes on each module how its weights are stored, and any of its
    implementations may take the place of ``forward``: what they rely on is relied on here.
    """

    def fits(self, module: Any) -> bool:
        """Whether the decorator's attributes are there, and nothing this forward pass does not compute."""
        noted = ("num_experts", "is_transposed", "has_bias", "_apply_gate")
        if not (_is_of_transformers(module) and all(hasattr(module, name) for name in noted)):
            return False
        names = self.layer_names(module)
        biases = tuple(f"{name}_bias" for name in names) if module.has_bias else ()
        others = getattr(module, "has_post_expert_norm", False) or getattr(module, "_is_expert_parallel", False)
        return not others and set(module._parameters) == {*names, *biases} and _shapes_fit(module, names)

    def layer_names(self, module: Any) -> tuple[str, str]:
        """Gate and up are one weight, where there is a gate."""
        return "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj", "down_proj"

    def is_input_major(self, module: Any) -> bool:
        """As the decorator notes it."""
        return bool(module.is_transposed)

    def forward(self, original: Any, first: nn.Module, second: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        """``hidden_states [tokens, hidden]``, ``top_k_index`` and ``top_k_weights [tokens, top_k]``."""
        hidden_states, top_k_index, top_k_weights = args
        routing = Routing.of(top_k_index, original.num_experts)
        activate = original._apply_gate if getattr(original, "has_gate", True) else original.act_fn
        hidden = activate(first(routing.gather(hidden_states), routing.offsets))
        return routing.combine(second(hidden, routing.offsets), top_k_weights).to(hidden_states.dtype)


class Llama4Experts(FusedForm):
    """``Llama4TextExperts``: as many rows for each expert, in order of experts; weights are ``[experts, in, out]``."""

    def fits(self, module: Any) -> bool:
        """Known by the name of the class and its parameters."""
        names = ("gate_up_proj", "down_proj")
        known = _is_of_transformers(module) and type(module).__name__ == "Llama4TextExperts"
        return known and set(module._parameters) == set(names) and _shapes_fit(module, names)

    def layer_names(self, module: Any) -> tuple[str, str]:
        """Gate and up are one weight."""
        return "gate_up_proj", "down_proj"

    def is_input_major(self, module: Any) -> bool:
        """Always."""
        return True

    def forward(self, original: Any, first: nn.Module, second: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        """``hidden_states [experts * tokens, hidden]``, as many rows for each expert."""
        (hidden_states,) = args
        if hidden_states.shape[0] % original.num_experts:
            raise TopologyError(
                f"{hidden_states.shape[0]} rows are not as many for each of {original.num_experts} experts; "
                "repeat the tokens once per expert"
            )
        gate, up = first(hidden_states.reshape(-1, hidden_states.shape[-1])).chunk(2, dim=-1)
        y: Tensor = second(up * original.act_fn(gate))
        return y


FUSED_FORMS: dict[str, FusedForm] = {"transformers": ExpertsInterface(), "llama4": Llama4Experts()}
"""Every form by name."""


_KEPT_CONVERSIONS = "acf_dense_weight_conversions"
"""Where a model keeps what transformers does with its weights when it is saved dense."""


class UnfusedExperts(nn.Module):
    """A module of fused experts with its weights as two layers, which may be dense or sparse.

    It computes what the original did. ``acf.densify_`` puts the original back.
    """

    def __init__(self, original: nn.Module, form: FusedForm) -> None:
        super().__init__()
        self.form = form
        self._original = (original,)  # in a tuple it is no submodule: its settings serve on, its weights are elsewhere
        for name, child in [*original.named_children(), *form.layers(original).items()]:
            self.add_module(name, child)
        self.train(original.training)

    @property
    def original(self) -> nn.Module:
        """The module this one stands for; without weights while a layer is sparse."""
        return self._original[0]

    def layers(self) -> dict[str, nn.Module]:
        """The two layers by name."""
        return {name: self._modules[name] for name in self.form.layer_names(self.original)}  # type: ignore[misc]

    def forward(self, *args: Tensor) -> Tensor:
        """As the original."""
        first, second = self.layers().values()
        return self.form.forward(self.original, first, second, args)

    def fused(self) -> nn.Module | None:
        """The original with the weights of the layers; None, and the original without weights, if one is sparse."""
        layers = self.layers()
        is_dense = all(type(layer) is ExpertLinear for layer in layers.values())
        for name, layer in layers.items():
            self.original._parameters[name] = layer.weight if is_dense else None  # type: ignore[assignment]
            if f"{name}_bias" in self.original._parameters:
                self.original._parameters[f"{name}_bias"] = layer.bias if is_dense else None  # type: ignore[assignment]
        return self.original.train(self.training) if is_dense else None


@contextmanager
def unfused_experts(model: nn.Module) -> Iterator[None]:
    """Within it the fused experts of ``model`` are layers; afterwards only those of which a layer became sparse."""
    made: dict[nn.Module, UnfusedExperts] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            form = None if child is None else form_of(child)
            if child is not None and form is not None and not _has_hooks(child):
                parent._modules[name] = made.setdefault(child, UnfusedExperts(child, form))
    try:
        yield
    finally:
        fuse_experts(model)


def fuse_experts(model: nn.Module) -> None:
    """Put fused experts back wherever no layer is sparse."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, UnfusedExperts):
                parent._modules[name] = child.fused() or child
    _keep_names_when_saved(model)


def _keep_names_when_saved(model: nn.Module) -> None:
    """Let ``save_pretrained`` write unfused experts as they are: transformers would split their weights by name."""
    for module in model.modules():
        if not hasattr(module, "save_pretrained"):
            continue
        unfused = any(isinstance(each, UnfusedExperts) for each in module.modules())
        if unfused and _KEPT_CONVERSIONS not in module.__dict__:
            module.__dict__[_KEPT_CONVERSIONS] = getattr(module, "_weight_conversions", None)
            module.__dict__["_weight_conversions"] = []
        elif not unfused and _KEPT_CONVERSIONS in module.__dict__:
            module._weight_conversions = module.__dict__.pop(_KEPT_CONVERSIONS)


def form_of(module: nn.Module) -> FusedForm | None:
    """The form of fused experts that a module has; None if it has none."""
    return next((form for form in FUSED_FORMS.values() if form.fits(module)), None)


def why_fused(module: nn.Module) -> str:
    """Why fused experts of a known form stay dense, or an empty string."""
    if form_of(module) is None:
        return ""
    return (
        "it has hooks, which its sparse successor would lose"
        if _has_hooks(module)
        else "experts have a block-sparse form alone"
    )


def _is_of_transformers(module: nn.Module) -> bool:
    return type(module).__module__.split(".")[0] == "transformers"


def _shapes_fit(module: nn.Module, names: tuple[str, ...]) -> bool:
    weights = [module._parameters[name] for name in names]
    return all(weight is not None and weight.dim() == 3 for weight in weights)


def _has_hooks(module: nn.Module) -> bool:
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(len(hooks) > 0 for hooks in kinds)
