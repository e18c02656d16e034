"""The network that an agent starts with tells screens apart."""

import pytest
import torch
from torch import Tensor

from acf.bench.pong.agent import pong_variant
from acf.bench.pong.network import pong_network
from acf.bench.pong.settings import DqnSettings

CPU = torch.device("cpu")
VARIANTS = ("dense", "static-90/block=32")


def screens() -> Tensor:
    """Pong: the playing field, two bats and a ball, all at random heights."""
    random = torch.Generator().manual_seed(0)
    frames = torch.full((64, 4, 84, 84), 87, dtype=torch.uint8)
    for game in frames:
        left, right, ball = torch.randint(0, 74, (3,), generator=random).tolist()
        game[:, left : left + 9, 8:10], game[:, right : right + 9, 74:76] = 147, 148
        game[:, ball : ball + 2, 40 + ball // 4] = 236
    return frames


@pytest.mark.parametrize("variant", VARIANTS)
def test_action_values_differ_between_screens_from_the_start(variant: str) -> None:
    torch.manual_seed(0)
    networks = {
        start: pong_network(DqnSettings(start=start), pong_variant(variant), 6, CPU) for start in ("he", "torch")
    }
    with torch.no_grad():
        values = {start: network(screens()) for start, network in networks.items()}
    assert float(values["he"].std(0).mean()) > 5 * float(values["torch"].std(0).mean())
    assert float(values["he"].abs().max()) < 1


def test_the_playing_field_is_zero_to_the_first_layer() -> None:
    torch.manual_seed(0)
    model = pong_network(DqnSettings(), pong_variant("dense"), 6, CPU)
    seen: list[Tensor] = []
    model.get_submodule("features.0").register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    frames = screens()
    model(frames)
    assert torch.equal(seen[0] == 0, frames == 87)


def test_the_start_of_torch_is_its_own() -> None:
    torch.manual_seed(0)
    model = pong_network(DqnSettings(start="torch"), pong_variant("dense"), 6, CPU)
    torch.manual_seed(0)
    first = torch.nn.Conv2d(4, 32, 8, stride=4)
    assert torch.equal(model.get_parameter("features.0.weight"), first.weight)
