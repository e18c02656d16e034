"""The networks, in plain torch, by name.

>>> NETWORKS["small-cnn"].build(channels=1, classes=10, width=16)[0]
Conv2d(1, 16, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from acf.zoo.networks.alexnet import AlexNet
from acf.zoo.networks.bert import BertBase
from acf.zoo.networks.caffe_cnns import cifar10_quick, lenet
from acf.zoo.networks.dqn import SCREEN, NatureDqn
from acf.zoo.networks.googlenet import GoogLeNet
from acf.zoo.networks.gpt import Gpt
from acf.zoo.networks.mixer import MixerS16
from acf.zoo.networks.ncf import NeuralCollaborativeFiltering
from acf.zoo.networks.resnet import ResNet50
from acf.zoo.networks.resnet_cifar import resnet18_cifar
from acf.zoo.networks.small_cnn import digits_cnn, small_cnn
from acf.zoo.networks.squeezenet import SqueezeNet
from acf.zoo.networks.transformer import TransformerBase
from acf.zoo.networks.vgg import VGG8_STAGES, Vgg16, VggCifar
from acf.zoo.networks.vit import Vit16
from acf.zoo.networks.wide_resnet import wide_resnet

__all__ = ["NETWORKS", "Network"]

_EXAMPLES: dict[str, tuple[tuple[int, ...], ...]] = {
    "image": ((3, 224, 224),),
    "large image": ((3, 256, 256),),
    "small image": ((3, 32, 32),),
    "digit": ((1, 8, 8),),
    "sentence": ((64,),),
    "pair": ((2,),),
    "translation": ((64,), (64,)),
    "text": ((64,),),
    "screen": (SCREEN,),
}


@dataclass(frozen=True)
class Network:
    """How to ``build`` a network, and what it ``reads``.

    "image": ``[batch, 3, 224, 224]``; "large image": ``[batch, 3, 256, 256]``; "small image":
    ``[batch, 3, 32, 32]``; "digit": ``[batch, 1, 8, 8]``; "sentence": token numbers ``[batch, tokens]``; "pair":
    numbers of a user and an item ``[batch, 2]``; "translation": token numbers of source and target, two inputs;
    "text": token numbers ``[batch, tokens]``, for a prediction at every position; "screen": the last four grey frames
    of a game, ``[batch, 4, 84, 84]``.
    """

    build: Callable[..., nn.Module]
    reads: str

    def example(self, batch: int = 1) -> tuple[Tensor, ...]:
        """Inputs of one forward pass, all ones: pixels, or token numbers."""
        number = torch.float32 if self.reads.endswith(("image", "digit")) else torch.int64
        return tuple(torch.ones((batch, *shape), dtype=number) for shape in _EXAMPLES[self.reads])


NETWORKS: dict[str, Network] = {
    "alexnet": Network(AlexNet, "image"),
    "vgg16": Network(Vgg16, "image"),
    "squeezenet": Network(SqueezeNet, "image"),
    "googlenet": Network(GoogLeNet, "image"),
    "googlenet-2015": Network(partial(GoogLeNet, branch_kernel=5, normalise=False), "image"),
    "resnet50": Network(ResNet50, "image"),
    "vit-b16": Network(Vit16, "image"),
    "vit-s16": Network(partial(Vit16, 384), "image"),
    "mixer-s16": Network(MixerS16, "large image"),
    "bert-base": Network(BertBase, "sentence"),
    "ncf": Network(NeuralCollaborativeFiltering, "pair"),
    "transformer-base": Network(TransformerBase, "translation"),
    "gpt": Network(Gpt, "text"),
    "vgg16-cifar": Network(VggCifar, "small image"),
    "vgg16-bn-cifar": Network(partial(VggCifar, normalise=True), "small image"),
    "vgg8-cifar": Network(partial(VggCifar, VGG8_STAGES), "small image"),
    "resnet18-cifar": Network(resnet18_cifar, "small image"),
    "wrn28-10-cifar": Network(wide_resnet, "small image"),
    "small-cnn": Network(small_cnn, "small image"),
    "lenet": Network(lenet, "small image"),
    "cifar10-quick": Network(cifar10_quick, "small image"),
    "digits-cnn": Network(digits_cnn, "digit"),
    "dqn": Network(NatureDqn, "screen"),
}
"""Every network by name, with the classifier of its publication unless ``build`` is told otherwise."""
