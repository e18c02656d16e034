"""The networks whose training steps are captured, in plain torch."""

from collections.abc import Callable

from torch import nn

from acf.zoo.networks.alexnet import AlexNet
from acf.zoo.networks.bert import BertBase
from acf.zoo.networks.googlenet import GoogLeNet
from acf.zoo.networks.ncf import NeuralCollaborativeFiltering
from acf.zoo.networks.resnet import ResNet50
from acf.zoo.networks.squeezenet import SqueezeNet
from acf.zoo.networks.vgg import VGG8_STAGES, SmallVgg, Vgg16
from acf.zoo.networks.vit import VitB16

MODELS: dict[str, Callable[[], nn.Module]] = {
    "alexnet": AlexNet,
    "vgg16": Vgg16,
    "squeezenet": SqueezeNet,
    "googlenet": GoogLeNet,
    "resnet50": ResNet50,
    "vit-b16": VitB16,
    "bert-base": BertBase,
    "ncf": NeuralCollaborativeFiltering,
}
"""The networks by name, each with the head of its publication."""

SMALL_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg16": SmallVgg,
    "vgg16-bn": lambda: SmallVgg(normalise=True),
    "vgg8": lambda: SmallVgg(VGG8_STAGES),
}
"""Networks for images of 32 x 32 in ten classes, small enough to train for many epochs."""

__all__ = ["MODELS", "SMALL_NETWORKS"]
