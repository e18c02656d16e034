"""Two CNNs that a CPU trains in seconds: for images of about 32 x 32, and for the 8 x 8 digits of the demo."""

from torch import nn


def small_cnn(channels: int = 3, classes: int = 10, width: int = 32) -> nn.Sequential:
    """Four 3x3 convolutions, ``width`` to ``4 * width`` channels, three of them strided, and a linear classifier."""
    layers: list[nn.Module] = []
    inputs = channels
    for outputs, stride in ((width, 2), (2 * width, 2), (2 * width, 1), (4 * width, 2)):
        layers += _convolution(inputs, outputs, stride)
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def digits_cnn() -> nn.Sequential:
    """Four 3x3 convolutions and two linear layers over ``[batch, 1, 8, 8]``, 225,386 parameters.

    First and last layer are too thin for blocks of 16 x 16 and stay dense.
    """
    return nn.Sequential(
        *_convolution(1, 32),
        *_convolution(32, 64),
        *_convolution(64, 64, stride=2),
        *_convolution(64, 64),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def _convolution(inputs: int, outputs: int, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()
