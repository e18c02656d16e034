"""Live figures of a moving topology."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.gradients import GradientSparsity
from acf.masks import BlockDST, StaticTopology
from acf.nn import BlockSparsity, sparsify_
from acf.train import LayerFigures, attach, gradient_figures, print_figures, write_scalars

EVERY_SECOND = BlockDST(total_steps=100, every=2, fraction=0.5, schedule="constant")


def sparse_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    sparsify_(model, BlockSparsity(sparsity=0.75, block=4))
    return model


def train(model: nn.Module, controller, steps: int) -> None:
    for _ in range(steps):
        controller.optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        controller.optimizer.step()


def attached(model: nn.Module, policy=EVERY_SECOND, **settings):
    return attach(model, torch.optim.SGD(model.parameters(), lr=0.05), policy, **settings)


def test_before_the_first_move_nothing_flipped_and_only_the_present_is_explored():
    model = sparse_model()
    controller = attached(model)
    train(model, controller, steps=1)
    assert controller.figures() == (
        LayerFigures(step=1, layer="0", density=0.25, flip_rate=0.0, explored=0.25),
        LayerFigures(step=1, layer="2", density=0.25, flip_rate=0.0, explored=0.25),
    )


def test_figures_follow_the_blocks_that_were_ever_present():
    model = sparse_model()
    controller = attached(model)
    ever = model[0].mask()
    for _ in range(4):
        train(model, controller, steps=2)
        ever |= model[0].mask()
        first, _ = controller.figures()
        assert first == LayerFigures(controller.step, "0", 0.25, 0.5, pytest.approx(ever.float().mean().item()))
    assert 0.375 <= first.explored <= 0.75


def test_a_resumed_run_remembers_what_was_explored_and_flipped():
    model = sparse_model()
    controller = attached(model)
    train(model, controller, steps=5)
    other = sparse_model()
    resumed = attached(other)
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(controller.state_dict()))
    assert resumed.figures() == controller.figures()
    assert resumed.figures()[0].explored > 0.25


def test_the_callback_gets_the_figures_after_every_move():
    seen = []
    model = sparse_model()
    controller = attached(model, on_move=lambda step, figures: seen.append((step, figures)))
    train(model, controller, steps=5)
    assert [step for step, _ in seen] == [2, 4]
    assert seen[-1][1][0].flip_rate == 0.5
    assert seen[-1][1] == tuple(LayerFigures(**{**vars(each), "step": 4}) for each in controller.figures())


def test_a_static_topology_has_figures_and_makes_no_calls():
    seen = []
    model = sparse_model()
    controller = attached(model, StaticTopology(), on_move=lambda step, figures: seen.append(step))
    train(model, controller, steps=3)
    assert seen == []
    assert [each.density for each in controller.figures()] == [0.25, 0.25]


def test_a_summary_writer_gets_one_curve_per_layer_and_figure():
    class Writer:
        def __init__(self) -> None:
            self.scalars: dict[str, list[tuple[int, float]]] = {}

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self.scalars.setdefault(tag, []).append((global_step, scalar_value))

    writer, model = Writer(), sparse_model()
    train(model, attached(model, on_move=write_scalars(writer)), steps=4)
    assert writer.scalars.keys() == {
        f"topology/{layer}/{figure}" for layer in ("0", "2") for figure in ("density", "flip_rate", "explored")
    }
    assert writer.scalars["topology/0/density"] == [(2, 0.25), (4, 0.25)]
    assert writer.scalars["topology/0/flip_rate"] == [(2, 0.5), (4, 0.5)]


def test_tensorboard_itself_takes_the_figures(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    model = sparse_model()
    with tensorboard.SummaryWriter(tmp_path) as writer:
        train(model, attached(model, on_move=write_scalars(writer)), steps=2)
    assert any(path.stat().st_size > 0 for path in tmp_path.iterdir())


def test_tensorboard_gets_a_picture_of_every_mask():
    pictures = []
    writer = SimpleNamespace(
        add_scalar=lambda *scalar: None,
        add_image=lambda tag, pixels, step, dataformats: pictures.append((tag, pixels.clone(), step, dataformats)),
    )
    model = sparse_model()
    train(model, attached(model, on_move=write_scalars(writer, masks_of=model)), steps=2)
    assert [(tag, step, order) for tag, _, step, order in pictures] == [("mask/0", 2, "HW"), ("mask/2", 2, "HW")]
    assert torch.equal(pictures[0][1] == 255, model[0].mask())


def test_the_terminal_gets_one_line_per_move(capsys):
    model = sparse_model()
    train(model, attached(model, on_move=print_figures()), steps=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "step 2  mean of 2 layers: density 0.25",
        "step 4  mean of 2 layers: density 0.25",
    ]


def test_the_terminal_gets_a_line_per_layer_where_it_is_asked_for(capsys):
    model = sparse_model()
    train(model, attached(model, on_move=print_figures(per_layer=True)), steps=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["step 2  0: density 0.25", "step 2  2: density 0.25"]


def test_thresholds_go_where_the_figures_of_a_topology_go(capsys):
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    sparsify_(model, GradientSparsity(target=0.5, method="static", threshold=0.25))
    model(torch.randn(8, 16)).sum().backward()
    first, second = gradient_figures(torch.compile(model, backend="eager"), step=7)
    assert (first.step, first.layer, first.target, first.threshold) == (7, "0", 0.5, 0.25)
    assert first.sparsity > 0.0
    print_figures(per_layer=True)(7, [first, second])
    assert capsys.readouterr().out.splitlines()[1] == "step 7  2: target 0.5, sparsity 0, threshold 0.25"
    print_figures()(7, [first, second])
    assert capsys.readouterr().out.startswith("step 7  mean of 2 layers' gradients: target 0.5, sparsity ")
    written = []
    write_scalars(SimpleNamespace(add_scalar=lambda *scalar: written.append(scalar)))(7, [first])
    assert written == [
        ("gradient/0/target", 0.5, 7),
        ("gradient/0/sparsity", first.sparsity, 7),
        ("gradient/0/threshold", 0.25, 7),
    ]


def test_passing_the_maker_in_place_of_what_it_makes_is_refused() -> None:
    with pytest.raises(SparsityError, match=r"pass on_move=acf.print_figures\(\)"):
        print_figures(100, ())
