"""The replay buffer: a ring of frames on the device, from which stacks and n-step returns are put together."""

import os
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from acf.errors import DataError

MEMORY_SHARE = 0.8
"""Largest part of the free memory that a buffer may take."""


class Batch(NamedTuple):
    """Transitions over ``n_step`` steps.

    ``states`` and ``next_states`` uint8 ``[batch, stack, height, width]``, ``actions`` int64 ``[batch]``, ``returns``
    float32 ``[batch]``: the discounted rewards in between; ``discounts`` float32 ``[batch]``: the factor on the value
    of ``next_states``, 0 where the episode ended before.
    """

    states: Tensor
    actions: Tensor
    returns: Tensor
    discounts: Tensor
    next_states: Tensor


@dataclass(frozen=True)
class ReplaySpec:
    """``capacity`` transitions of ``games`` games, sampled as stacks of ``stack`` frames over ``n_step`` steps."""

    capacity: int
    games: int
    frame: tuple[int, int] = (84, 84)
    stack: int = 4
    n_step: int = 3
    discount: float = 0.99

    def __post_init__(self) -> None:
        least = (self.stack + self.n_step) * self.games
        if self.capacity < least:
            raise DataError(
                f"capacity {self.capacity} holds fewer than {self.stack + self.n_step} steps of {self.games} games; "
                f"use {least} or more"
            )

    @property
    def slots(self) -> int:
        """Steps of all games that the ring holds."""
        return self.capacity // self.games

    @property
    def bytes(self) -> int:
        """Memory of the ring."""
        return self.slots * self.games * (prod(self.frame) + 8 + 4 + 1)


class ReplayBuffer:
    """The last transitions of every game.

    A slot holds, for every game, the frame that was seen, the action taken, the reward it gave and whether the
    episode ended. Every frame is stored once; frames of an earlier episode are zeros in a stack, as at its start.
    """

    def __init__(self, spec: ReplaySpec, device: torch.device, seed: int = 0) -> None:
        require_memory(spec, device)
        self.spec, self.device = spec, device
        shape = (spec.slots, spec.games)
        self.frames = torch.zeros(*shape, *spec.frame, dtype=torch.uint8, device=device)
        self.actions = torch.zeros(shape, dtype=torch.int64, device=device)
        self.rewards = torch.zeros(shape, dtype=torch.float32, device=device)
        self.ended = torch.zeros(shape, dtype=torch.bool, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.filled = self._next = 0
        self._stack_offsets = torch.arange(1 - spec.stack, 1, device=device)
        self._step_offsets = torch.arange(spec.n_step, device=device)
        self._powers = spec.discount ** self._step_offsets.float()

    def push(self, frames: Tensor, actions: Tensor, rewards: Tensor, ended: Tensor) -> None:
        """Store one step of all games: the ``frames`` that were seen before the ``actions``."""
        slot = self._next
        self.frames[slot].copy_(frames)
        self.actions[slot].copy_(actions)
        self.rewards[slot].copy_(rewards)
        self.ended[slot].copy_(ended)
        self._next = (slot + 1) % self.spec.slots
        self.filled = min(self.filled + 1, self.spec.slots)

    @property
    def ready(self) -> bool:
        """Whether a transition with its stack and its next state lies in the buffer."""
        return self.filled >= self.spec.stack + self.spec.n_step

    def sample(self, batch: int) -> Batch:
        """Transitions drawn uniformly, with replacement."""
        if not self.ready:
            raise DataError(
                f"{self.filled} steps are in the buffer, fewer than the {self.spec.stack + self.spec.n_step} that a "
                "transition takes; play more steps before the first update"
            )
        first, last = self.spec.stack - 1, self.filled - self.spec.n_step
        ages = torch.randint(first, last, (batch,), device=self.device, generator=self.generator)
        games = torch.randint(self.spec.games, (batch,), device=self.device, generator=self.generator)
        return self.at(ages + (self._next - self.filled), games)

    def at(self, slots: Tensor, games: Tensor) -> Batch:
        """The transitions that begin in these ``slots [batch]``, taken modulo the ring, of these ``games [batch]``."""
        steps, games_of = self._ring(slots, self._step_offsets), games[:, None]
        goes_on = (~self.ended[steps, games_of]).float().cumprod(1)
        before = torch.cat([torch.ones_like(goes_on[:, :1]), goes_on[:, :-1]], dim=1)
        returns = (self.rewards[steps, games_of] * before * self._powers).sum(1)
        discounts = goes_on[:, -1] * self.spec.discount**self.spec.n_step
        actions = self.actions[steps[:, 0], games]
        return Batch(
            self._stacks(slots, games), actions, returns, discounts, self._stacks(slots + len(steps[0]), games)
        )

    def _stacks(self, slots: Tensor, games: Tensor) -> Tensor:
        """The frames up to ``slots``; zeros in the place of frames before the episode's first."""
        places, games_of = self._ring(slots, self._stack_offsets), games[:, None]
        same_episode = (~self.ended[places[:, :-1], games_of]).flip(1).cumprod(1).flip(1).to(torch.uint8)
        frames = self.frames[places, games_of]
        frames[:, :-1] *= same_episode[:, :, None, None]
        return frames

    def _ring(self, slots: Tensor, offsets: Tensor) -> Tensor:
        return (slots[:, None] + offsets) % self.spec.slots


class FrameStack:
    """The last frames of every game, uint8 ``[games, stack, height, width]``, zeros before the episode's first."""

    def __init__(self, first: Tensor, stack: int = 4) -> None:
        self.frames = torch.zeros(first.shape[0], stack, *first.shape[1:], dtype=torch.uint8, device=first.device)
        self.frames[:, -1] = first

    def push(self, frames: Tensor, ended: Tensor) -> None:
        """Take the newest frames; where an episode has ``ended`` they are the first of the next."""
        older = self.frames[:, 1:] * (~ended).to(torch.uint8)[:, None, None, None]
        self.frames = torch.cat([older, frames[:, None]], dim=1)


def require_memory(spec: ReplaySpec, device: torch.device) -> None:
    """Refuse a buffer that takes more than `MEMORY_SHARE` of the free memory, and say which would fit."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_host_bytes()
    if spec.bytes > MEMORY_SHARE * free:
        fitting = int(MEMORY_SHARE * free / spec.bytes * spec.capacity)
        raise DataError(
            f"capacity {spec.capacity} takes {spec.bytes / 2**30:.1f} GiB of the {free / 2**30:.1f} GiB that are free "
            f"on {device.type}; use --capacity {fitting} or less"
        )


def _free_host_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _cached_bytes()


def _cached_bytes() -> int:
    """Pages of files that the kernel gives up when memory is asked for; 0 where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            cached = next((line for line in lines if line.startswith("Cached:")), "Cached: 0 kB")
    except OSError:
        return 0
    return int(cached.split()[1]) * 1024
