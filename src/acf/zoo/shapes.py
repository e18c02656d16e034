"""Matrix products of one training step of ResNet-50, VGG-16 and ViT-B/16 on 224 x 224 images, by shape alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class LayerShape:
    """A convolution or linear layer: output ``positions`` of one example, channels, kernel ``taps``.

    ``first`` marks the layer that reads the data: it stays dense and needs no input gradient.
    """

    name: str
    positions: int
    in_channels: int
    out_channels: int
    taps: int = 1
    first: bool = False

    @property
    def weights(self) -> int:
        """Number of weights."""
        return self.in_channels * self.out_channels * self.taps

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one example's forward pass."""
        return self.positions * self.weights


@dataclass(frozen=True)
class AttentionShape:
    """Scores and context of ``heads`` over ``tokens``: products of activations, without weights."""

    name: str
    heads: int
    tokens: int
    head_channels: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one example's forward pass."""
        return 2 * self.heads * self.tokens**2 * self.head_channels


NetworkShape = tuple[LayerShape | AttentionShape, ...]


def resnet50() -> NetworkShape:
    """ResNet-50 with the stride in the 3x3 convolution of a block."""
    return tuple(_resnet50_layers())


def _resnet50_layers() -> Iterator[LayerShape]:
    yield LayerShape("conv1", 112**2, 3, 64, 49, first=True)
    channels, size = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            name, strided = f"layer{stage + 1}.{block}", stage > 0 and block == 0
            output = size // 2 if strided else size
            yield LayerShape(f"{name}.conv1", size**2, channels, width)
            yield LayerShape(f"{name}.conv2", output**2, width, width, 9)
            yield LayerShape(f"{name}.conv3", output**2, width, 4 * width)
            if block == 0:
                yield LayerShape(f"{name}.downsample", output**2, channels, 4 * width)
            channels, size = 4 * width, output
    yield LayerShape("fc", 1, 2048, 1000)


def vgg16() -> NetworkShape:
    """VGG-16."""
    layers, channels, size = [], 3, 224
    for stage, (convolutions, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for index in range(convolutions):
            layers.append(LayerShape(f"conv{stage + 1}.{index}", size**2, channels, width, 9, first=channels == 3))
            channels = width
        size //= 2
    sizes = pairwise((512 * size**2, 4096, 4096, 1000))
    return (*layers, *(LayerShape(f"fc{index}", 1, inputs, outputs) for index, (inputs, outputs) in enumerate(sizes)))


def vit_base() -> NetworkShape:
    """ViT-B/16: 196 patches and a class token, 12 blocks of width 768."""
    tokens, width = 197, 768
    layers: list[LayerShape | AttentionShape] = [LayerShape("patches", 196, 3, width, 256, first=True)]
    for block in range(12):
        layers += [
            LayerShape(f"block{block}.qkv", tokens, width, 3 * width),
            AttentionShape(f"block{block}.attention", 12, tokens, 64),
            LayerShape(f"block{block}.projection", tokens, width, width),
            LayerShape(f"block{block}.mlp1", tokens, width, 4 * width),
            LayerShape(f"block{block}.mlp2", tokens, 4 * width, width),
        ]
    return (*layers, LayerShape("head", 1, width, 1000))


NETWORK_SHAPES: dict[str, Callable[[], NetworkShape]] = {"resnet50": resnet50, "vgg16": vgg16, "vit-base": vit_base}
"""The networks by name."""
