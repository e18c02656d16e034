"""The replay buffer against a walk over the whole history."""

import pytest
import torch

from acf.bench.pong import replay
from acf.bench.pong.replay import FrameStack, ReplayBuffer, ReplaySpec
from acf.errors import DataError

CPU = torch.device("cpu")
SPEC = ReplaySpec(capacity=60, games=3, frame=(2, 2), stack=4, n_step=3, discount=0.9)


class History:
    """Everything that was pushed, and the stack that a player saw at every step."""

    def __init__(self, steps: int) -> None:
        random = torch.Generator().manual_seed(steps)
        self.frames = torch.randint(1, 256, (steps, 3, 2, 2), generator=random, dtype=torch.uint8)
        self.actions = torch.randint(0, 6, (steps, 3), generator=random)
        self.rewards = torch.randn(steps, 3, generator=random)
        self.ended = torch.rand(steps, 3, generator=random) < 0.2
        self.seen = []
        stack = FrameStack(self.frames[0])
        for step in range(steps):
            self.seen.append(stack.frames)
            if step + 1 < steps:
                stack.push(self.frames[step + 1], self.ended[step])

    def push_into(self, buffer: ReplayBuffer) -> None:
        for each in zip(self.frames, self.actions, self.rewards, self.ended, strict=True):
            buffer.push(*each)

    def outcome(self, step: int, game: int) -> tuple[float, float]:
        """The n-step return and the discount that remains, one step at a time."""
        total, factor = 0.0, 1.0
        for later in range(step, step + SPEC.n_step):
            total += factor * float(self.rewards[later, game])
            factor *= SPEC.discount
            if self.ended[later, game]:
                return total, 0.0
        return total, factor


@pytest.mark.parametrize("steps", [15, 20, 47], ids=["partly filled", "just full", "overwritten twice"])
def test_transitions_are_those_that_were_played(steps: int) -> None:
    history, buffer = History(steps), ReplayBuffer(SPEC, CPU)
    history.push_into(buffer)
    oldest = max(0, steps - SPEC.slots) + SPEC.stack - 1
    for step in range(oldest, steps - SPEC.n_step):
        games = torch.arange(3)
        batch = buffer.at(torch.full((3,), step), games)
        assert torch.equal(batch.states, history.seen[step])
        assert torch.equal(batch.next_states, history.seen[step + SPEC.n_step])
        assert torch.equal(batch.actions, history.actions[step])
        expected = torch.tensor([history.outcome(step, game) for game in range(3)])
        torch.testing.assert_close(torch.stack([batch.returns, batch.discounts], dim=1), expected)


def test_samples_hold_only_whole_transitions() -> None:
    history, buffer = History(47), ReplayBuffer(SPEC, CPU, seed=1)
    history.push_into(buffer)
    batch = buffer.sample(400)
    whole = range(47 - SPEC.slots + SPEC.stack - 1, 47 - SPEC.n_step)
    stacks = [history.seen[step][game] for step in whole for game in range(3)]
    drawn = {tuple(state.flatten().tolist()) for state in batch.states}
    assert drawn == {tuple(stack.flatten().tolist()) for stack in stacks}


def test_a_sample_from_too_few_steps_is_refused() -> None:
    buffer = ReplayBuffer(SPEC, CPU)
    History(6).push_into(buffer)
    with pytest.raises(DataError, match="6 steps are in the buffer, fewer than the 7"):
        buffer.sample(1)


def test_a_capacity_below_one_transition_is_refused() -> None:
    with pytest.raises(DataError, match="capacity 20 holds fewer than 7 steps of 3 games; use 21 or more"):
        ReplaySpec(capacity=20, games=3)


def test_a_buffer_beyond_the_free_memory_is_refused_with_one_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_free_host_bytes", lambda: 2**30)
    with pytest.raises(DataError, match=r"takes 6\.6 GiB of the 1\.0 GiB .* use --capacity 121\d\d\d or less"):
        ReplayBuffer(ReplaySpec(capacity=1_000_000, games=4), CPU)
