"""The Q-network of an agent as it starts: its weights, and what sparsity removes of them."""

from dataclasses import replace

import torch
from torch import nn

import acf
from acf.bench.pong.environment import BACKGROUND
from acf.bench.pong.settings import DqnSettings
from acf.bench.training.variant import Variant
from acf.zoo.networks.dqn import NatureDqn

OUTPUT_SCALE = 0.1
"""Factor on the first weights of the output layer, so that action values start near zero."""


def pong_network(settings: DqnSettings, variant: Variant, actions: int, device: torch.device) -> nn.Module:
    """A fresh network, made sparse with its weights rescaled so that outputs keep their variance."""
    model = _started(settings.start, actions).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    sparsity = variant.recipe.sparsity
    if isinstance(sparsity, acf.BlockSparsity):
        kept_dense = variant.dense_layers

        def takes(module: nn.Module, name: str) -> bool:
            return not any(part in name for part in kept_dense)

        acf.sparsify_(model, replace(sparsity, rescale=True), takes if kept_dense else None)
    return model  # type: ignore[no-any-return]


def _started(start: str, actions: int) -> nn.Module:
    """Weights of `DqnSettings.start`.

    With torch's own weights on screens from 0 to 1, a layer passes on a third of its input's deviation, and the playing
    field's grey is by far the largest part of that. All screens look alike to such a network: half of its hidden units
    are zero on every one, and most of the others follow before it has learnt to tell screens apart.
    """
    if start == "torch":
        return NatureDqn(actions)
    model = NatureDqn(actions, BACKGROUND)
    for layer in (*model.features, *model.values):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # every layer of this network has one
    with torch.no_grad():
        model.get_parameter("values.2.weight").mul_(OUTPUT_SCALE)
    return model
