"""`acf.ema`: the exponential moving average of a model's weights."""

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from acf.errors import SparsityError
from acf.nn import SlotAveragedModel
from acf.train.distributed import unwrapped


def ema(model: nn.Module, decay: float = 0.999, device: torch.device | str | None = None) -> SlotAveragedModel:
    """An exponential moving average of the weights of ``model``, which follows blocks that move or are pruned.

    Call ``average.update_parameters(model)`` after every optimizer step, and ``average`` in the place of the model to
    evaluate; ``average.module`` is the averaged model. The first update copies the weights, later ones give
    ``decay * average + (1 - decay) * weight``. A new block starts with its weight; the topology and all buffers
    (running statistics of batch normalisation too) are the model's. ``device`` keeps the average elsewhere.

    It is a ``torch.optim.swa_utils.AveragedModel``: other averages are ``AveragedModel(model, multi_avg_fn=...)``,
    which follow moving blocks as well.
    """
    if not 0.0 <= decay < 1.0:
        raise SparsityError(f"decay {decay} is outside [0, 1); it is the share of the old average, such as 0.999")
    on_device = None if device is None else torch.device(device)
    average = SlotAveragedModel(unwrapped(model), on_device, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]
    average.module.requires_grad_(False)
    return average
