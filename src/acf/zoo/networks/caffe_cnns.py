"""The two small CNNs of Caffe's examples, which SparTANN trains: for MNIST and for CIFAR-10. No normalisation."""

from collections import OrderedDict

from torch import nn


def lenet(channels: int = 3, classes: int = 10, size: int = 32) -> nn.Sequential:
    """Caffe's LeNet over ``[batch, channels, size, size]``; 431,080 parameters for MNIST's 28 x 28 grey images."""
    side = ((size - 4) // 2 - 4) // 2
    features = nn.Sequential(nn.Conv2d(channels, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2))
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(50 * side**2, 500), nn.ReLU(), nn.Linear(500, classes))
    return nn.Sequential(OrderedDict(features=features, classifier=classifier))


def cifar10_quick(channels: int = 3, classes: int = 10, size: int = 32) -> nn.Sequential:
    """Caffe's "CIFAR-10 quick" over ``[batch, channels, size, size]``; 145,578 parameters for CIFAR-10."""
    features = nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, ceil_mode=True),
    )
    inputs = 64 * (size // 8) ** 2
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.Linear(64, classes))
    return nn.Sequential(OrderedDict(features=features, classifier=classifier))
