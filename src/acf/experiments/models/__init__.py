"""The networks whose training steps are captured, in plain torch."""

from collections.abc import Callable

from torch import nn

from acf.experiments.models.alexnet import AlexNet
from acf.experiments.models.bert import BertBase
from acf.experiments.models.googlenet import GoogLeNet
from acf.experiments.models.ncf import NeuralCollaborativeFiltering
from acf.experiments.models.resnet import ResNet50
from acf.experiments.models.squeezenet import SqueezeNet
from acf.experiments.models.vgg import VGG8_STAGES, SmallVgg, Vgg16
from acf.experiments.models.vit import VitB16

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
