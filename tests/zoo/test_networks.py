"""The networks: as many parameters as published, and gradients for all of them."""

from pathlib import Path

import pytest
import torch
from torch import nn

import acf
from acf.bench.epochs.training import NETWORK_NAMES
from acf.errors import SparsityError
from acf.zoo.capture import CAPTURED
from acf.zoo.networks import NETWORKS
from acf.zoo.networks.alexnet import AlexNet
from acf.zoo.networks.gpt import Gpt, GptSpec
from acf.zoo.networks.mixer import MixerS16
from acf.zoo.networks.transformer import TransformerBase, TransformerSpec
from acf.zoo.networks.wide_resnet import wide_resnet

PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "squeezenet": 1_235_496,
    "googlenet": 13_004_888,  # with both auxiliary heads
    "googlenet-2015": 13_378_280,  # the 5x5 branches of the publication, biases instead of normalisation
    "resnet50": 25_557_032,
    "vit-b16": 86_567_656,
    "vit-s16": 22_050_664,
    "mixer-s16": 18_774_504,  # 256 patches; 18,528,264 with the 196 of its paper
    "bert-base": 109_483_778,  # 109,482,240 of the encoder and its pooler, 1,538 of a two-class head
    "ncf": 392_601,  # NeuMF over 6,040 users and 3,706 items, 8 factors
    "transformer-base": 63_082_496,  # 37,000 embeddings, 6 x 3,152,384 encoder, 6 x 4,204,032 decoder
    "gpt": 168_846_336,  # 12 blocks of 12 x 1024^2, 16,384 + 1,024 embeddings, 25 norms, all without biases
    "vgg16-cifar": 15_245_130,
    "vgg16-bn-cifar": 15_253_578,
    "vgg8-cifar": 422_730,
    "resnet18-cifar": 11_173_962,
    "wrn28-10-cifar": 36_479_194,
    "small-cnn": 131_754,
    "lenet": 657_080,  # 431,080 for grey images of 28 x 28
    "cifar10-quick": 145_578,
    "digits-cnn": 225_386,
    "dqn": 1_687_206,  # 77,984 in three convolutions, 1,606,144 in the hidden layer, 3,078 for six actions
}
OUTPUTS = {
    "image": (2, 1000),
    "large image": (2, 1000),
    "small image": (2, 10),
    "digit": (2, 10),
    "sentence": (2, 2),
    "pair": (2,),
    "translation": (2, 64, 37_000),
    "text": (2, 64, 16_384),
    "screen": (2, 6),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_its_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        model = NETWORKS[name].build()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


def test_alexnet_in_two_columns_has_the_parameters_of_the_original() -> None:
    with torch.device("meta"):
        model = AlexNet(columns=2)
    assert sum(parameter.numel() for parameter in model.parameters()) == 60_965_224


def test_lenet_on_grey_digits_has_the_parameters_of_caffes_example() -> None:
    with torch.device("meta"):
        model = NETWORKS["lenet"].build(channels=1, size=28)
    assert sum(parameter.numel() for parameter in model.parameters()) == 431_080


def test_mixer_at_the_image_size_of_its_paper_has_its_number_of_parameters() -> None:
    with torch.device("meta"):
        model = MixerS16(image_size=224)
    assert sum(parameter.numel() for parameter in model.parameters()) == 18_528_264


def test_mixer_refuses_images_that_patches_do_not_divide() -> None:
    with pytest.raises(SparsityError, match="image size 200 does not divide into patches of 16"):
        MixerS16(image_size=200)


def test_transformer_base_has_about_the_65_million_parameters_of_its_paper() -> None:
    assert PARAMETERS["transformer-base"] == pytest.approx(65e6, rel=0.03)


@pytest.mark.parametrize("name", NETWORKS)
def test_one_backward_pass_reaches_every_parameter(name: str) -> None:
    network = NETWORKS[name]
    with torch.device("meta"):
        model = network.build()
        heads = model(*network.example(batch=2))
        heads = heads if isinstance(heads, tuple) else (heads,)
        sum(scores.sum() for scores in heads).backward()
    assert {tuple(scores.shape) for scores in heads} == {OUTPUTS[network.reads]}
    assert [label for label, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("name", "convolutions"), [("vgg16-cifar", 14_714_688), ("vgg16-bn-cifar", 14_714_688 + 2 * 4224)]
)
def test_a_small_vgg_has_the_convolutions_of_the_large_one(name: str, convolutions: int) -> None:
    with torch.device("meta"):
        model = NETWORKS[name].build()
    parameters = {label: parameter.numel() for label, parameter in model.named_parameters()}
    assert sum(size for label, size in parameters.items() if label.startswith("features")) == convolutions


def test_the_reference_names_every_network_that_a_command_takes() -> None:
    reference = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    assert [name for name in [*CAPTURED, *NETWORK_NAMES] if name not in reference] == []


@pytest.mark.parametrize("name", ["squeezenet", "ncf"])
def test_every_layer_with_weights_is_in_the_trace(name: str) -> None:
    model, inputs = NETWORKS[name].build(), NETWORKS[name].example(batch=2)[0]
    with acf.capture(model, name) as trace:
        model(inputs[..., :64, :64] if inputs.dim() == 4 else inputs).sum().backward()
    layers = [label for label, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert {op.name for op in trace.ops} == set(layers)


def test_vit_takes_images_of_its_own_size_and_of_others() -> None:
    with torch.device("meta"):
        model = NETWORKS["vit-b16"].build()
        assert model(torch.rand(1, 3, 224, 224)).shape == model(torch.rand(1, 3, 96, 64)).shape == (1, 1000)


def test_a_decoder_reads_no_token_before_its_turn() -> None:
    torch.manual_seed(0)
    model = TransformerBase(vocabulary=50).eval()
    source, target = torch.randint(50, (1, 6)), torch.randint(50, (1, 5))
    changed = torch.cat([target[:, :4], (target[:, 4:] + 1) % 50], dim=1)
    with torch.no_grad():
        before, after = model(source, target), model(source, changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4], after[:, 4])


def test_resnet50_for_small_images_differs_in_its_stem_alone() -> None:
    small = NETWORKS["resnet50"].build(classes=10, small_images=True)
    # 9 in place of 49 taps of the first convolution, and 10 classes in place of 1000
    assert sum(each.numel() for each in small.parameters()) == 25_557_032 - 3 * 64 * 40 - 990 * 2049
    maps = small.pool(small.conv1(torch.zeros(1, 3, 32, 32)))
    assert maps.shape == (1, 64, 32, 32)


def test_a_gpt_with_narrow_attention_and_embedding_has_the_parameters_of_its_widths() -> None:
    spec = GptSpec(256, layers=2, vocabulary=512, context=16, attention_width=128, embedding_width=64, head_width=32)
    model = Gpt(spec)
    attention, mlp, norms = 4 * 256 * 128, 8 * 256 * 256, 5 * 256
    tables, between = 512 * 64 + 16 * 256, 2 * 64 * 256
    assert sum(each.numel() for each in model.parameters()) == 2 * (attention + mlp) + norms + tables + between
    logits = model(torch.zeros(3, 16, dtype=torch.long))
    assert logits.shape == (3, 16, 512)
    logits.sum().backward()
    assert [label for label, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_narrow_embedding_enters_the_layers_as_large_as_a_wide_one() -> None:
    torch.manual_seed(0)
    tokens = torch.arange(512)
    models = [Gpt(GptSpec(256, 2, 512, 16, embedding_width=width)) for width in (None, 64)]
    wide, narrow = (model.embedding_in(model.token_embedding(tokens)) for model in models)
    assert narrow.shape == wide.shape
    torch.testing.assert_close(narrow.std(), wide.std(), rtol=0.1, atol=0)


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    with pytest.raises(SparsityError, match="width 20 is no multiple of twice the 8 heads"):
        TransformerSpec(width=20)


def test_widths_and_depths_that_a_network_cannot_have_are_refused() -> None:
    with pytest.raises(SparsityError, match=r"width 65 is no multiple of 128, a head's width; use one"):
        GptSpec(width=65)
    with pytest.raises(SparsityError, match=r"attention_width 96 is no multiple of 64, a head's width; use one"):
        GptSpec(attention_width=96, head_width=64)
    with pytest.raises(SparsityError, match=r"embedding_width 0 is no positive integer"):
        GptSpec(embedding_width=0)
    with pytest.raises(SparsityError, match=r"experts 0 is no positive integer"):
        GptSpec(experts=0)
    with pytest.raises(SparsityError, match=r"depth 27 is not 6 n \+ 4, .*; use 28"):
        wide_resnet(depth=27)
