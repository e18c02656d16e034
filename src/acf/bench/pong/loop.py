"""Playing and learning from a seed, with clock and energy meter running only meanwhile, and a checkpoint on the way."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import acf
from acf.bench.pong.agent import DqnAgent, pong_variant
from acf.bench.pong.environment import VectorEnvironment
from acf.bench.pong.record import PongRun, ScorePoint
from acf.bench.pong.replay import FrameStack, ReplayBuffer
from acf.bench.pong.score import ScoreBoard
from acf.bench.pong.settings import DqnSettings
from acf.bench.pong.store import PongStore
from acf.bench.training.loop import TrainingClock
from acf.metrics.meters import EnergyMeter

EVALUATION_EPSILON = 0.01
EVALUATION_VECTOR_STEPS = 10_000
"""Steps after which a game that has not ended counts with the points it has: 40,000 frames, 11 minutes of play."""

SEED_STRIDE = 100_003
"""Distance of the first game's seed from one run to the next; game i of a run has the seed i beyond it."""


@dataclass(frozen=True)
class Harness:
    """What all runs of a comparison share.

    ``points`` is how often score and checkpoint are written; ``captured`` how many transitions a captured step has, 0:
    nothing is captured; ``idle_seconds`` how long the idle power is measured before a run; ``session`` the number of
    the store's session.
    """

    settings: DqnSettings
    environment: VectorEnvironment
    device: torch.device
    store: PongStore
    points: int = 60
    captured: int = 32
    evaluates: bool = True
    idle_seconds: float = 1.0
    session: int = 0


OnPoint = Callable[[float, float | None], None]
"""Called with the share of the run that is done, and the score."""


def train_on_pong(harness: Harness, variant: str, seed: int, on_point: OnPoint = lambda share, score: None) -> PongRun:
    """Train ``variant`` from ``seed`` to the end, from its checkpoint where there is one; the run is in the store."""
    gc.collect()
    if harness.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    training = PongTraining(harness, variant, seed)
    try:
        with EnergyMeter(
            harness.device.type, idle_seconds=harness.idle_seconds, synchronize=training.synchronize
        ) as meter:
            training.train(meter, on_point)
        run = training.finished(meter)
        harness.store.add(run)
        harness.store.write_json()
        return run
    finally:
        training.agent.close()


class PongTraining:
    """Games, replay buffer, agent and counters of one run.

    A checkpoint holds networks, optimizer, topology, random state of the agent and counters. It holds neither the
    replay buffer nor the games: a run that is continued starts new episodes and plays the warm-up again with its
    present policy, outside of the clock, before it learns on.
    """

    def __init__(self, harness: Harness, variant: str, seed: int) -> None:
        self.harness, self.variant, self.seed = harness, variant, seed
        self.settings, self.device = harness.settings, harness.device
        self.agent = DqnAgent(self.settings, pong_variant(variant), harness.environment.actions, seed, self.device)
        self.buffer = ReplayBuffer(self.settings.replay, self.device, seed)
        self.board = ScoreBoard(self.settings.games)
        self.vector_step = self.interruptions = 0
        self.seconds, self.compile_seconds = 0.0, 0.0
        self.joules: float | None = 0.0
        self.loss: Tensor | None = None
        self.checkpoint = harness.store.checkpoint(variant, seed)
        if self.checkpoint.exists():
            self._continue(self.agent.load(self.checkpoint))
        first = self._on_device(harness.environment.reset(self._game_seed()))
        self.frame, self.stack = first, FrameStack(first, self.settings.replay.stack)

    def train(self, meter: EnergyMeter, on_point: OnPoint) -> None:
        """Warm up, then play and learn to the end, with a point and a checkpoint at every stop of the clock."""
        if self.vector_step >= self.settings.vector_steps:
            return
        self._warm_up()
        clock = TrainingClock(self, meter)
        clock.seconds, clock.joules = self.seconds, self.joules
        for stop in self._stops():
            clock.start()
            while self.vector_step < stop:
                self._play(
                    self.settings.epsilon_at(self.vector_step),
                    learns=self.vector_step >= self.settings.warm_up_vector_steps,
                )
                self.vector_step += 1
            clock.stop()
            self.seconds, self.joules = clock.seconds, clock.joules
            self._record()
            on_point(self.vector_step / self.settings.vector_steps, self.board.score)

    def finished(self, meter: EnergyMeter) -> PongRun:
        """The record of the run, after its evaluation."""
        points = self._evaluate() if self.harness.evaluates else None
        on_gpu = self.device.type == "cuda"
        return PongRun(
            variant=self.variant,
            seed=self.seed,
            frames=self.settings.frames_after(self.vector_step),
            steps=self.agent.step,
            seconds=self.seconds,
            joules=self.joules,
            idle_watts=meter.reading.idle_watts,
            energy_source=meter.reading.source,
            score=self.board.score,
            evaluation=None if points is None else float(points.mean()),
            evaluated=0 if points is None else len(points),
            sparsity=acf.weight_sparsity(self.agent.model),
            parameters=sum(parameter.numel() for parameter in self.agent.model.parameters()),
            moves=self.agent.moves,
            peak_gib=torch.cuda.max_memory_reserved() / 2**30 if on_gpu else 0.0,
            compile_seconds=self.compile_seconds,
            interruptions=self.interruptions,
            session=self.harness.session,
        )

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _play(self, epsilon: float, learns: bool, counted: bool = True) -> None:
        """One step of all games; the optimizer steps run while the games do."""
        chosen = self.agent.act(self.stack.frames, epsilon)
        self.harness.environment.send(chosen)
        for _ in range(self.settings.steps_per_vector_step if learns else 0):
            self.loss = self.agent.train_step(self.buffer.sample(self.settings.batch))
        played = self.harness.environment.receive()
        ended = self._on_device(played.ended)
        self.buffer.push(self.frame, self._on_device(chosen), self._on_device(played.rewards), ended)
        self.frame = self._on_device(played.frames)
        self.stack.push(self.frame, ended)
        self.board.add(played, counted)

    def _warm_up(self) -> None:
        """Compile and capture; fill the buffer of a run that is continued. Outside of the clock."""
        started = time.perf_counter()
        nowhere = torch.zeros(self.settings.batch, dtype=torch.int64, device=self.device)
        self.agent.warm_up(self.buffer.at(nowhere, nowhere), self.stack.frames)
        self.synchronize()
        self.compile_seconds += time.perf_counter() - started
        for _ in range(min(self.vector_step, self.settings.warm_up_vector_steps)):
            self._play(self.settings.epsilon_at(self.vector_step), learns=False, counted=False)

    def _stops(self) -> list[int]:
        """The vector steps, ascending, at which the clock stops: for points, and for the captured steps."""
        last, points = self.settings.vector_steps, self.harness.points
        stops = {round(index * last / points) for index in range(1, points + 1)} | set(self._moments())
        return sorted(stop for stop in stops if stop > self.vector_step)

    def _moments(self) -> dict[int, str]:
        """The vector steps whose next step is captured: the first that learns, the middle one, and past the last."""
        first, last = self.settings.warm_up_vector_steps, self.settings.vector_steps
        return {first: "start", (first + last) // 2: "middle", last: "end"}

    def _record(self) -> None:
        """Write point, trace and checkpoint, in this order: what a checkpoint has passed is on the disk."""
        self.harness.store.add(self._point())
        moment = self._moments().get(self.vector_step)
        if moment is not None and self.harness.captured:
            label = f"dqn {self.variant}, seed {self.seed}, {moment}: {self.harness.captured} transitions"
            path = self.harness.store.trace(self.variant, self.seed, moment)
            path.parent.mkdir(exist_ok=True)
            self.agent.capture(self.buffer.sample(self.harness.captured), label).save(path)
        self.agent.save(self.checkpoint, run=self._state())

    def _point(self) -> ScorePoint:
        loss = None if self.loss is None else float(self.loss)
        return ScorePoint(
            self.variant,
            self.seed,
            self.settings.frames_after(self.vector_step),
            self.agent.step,
            self.seconds,
            self.joules,
            self.board.score,
            self.board.episodes,
            self.settings.epsilon_at(self.vector_step),
            loss if loss is not None and isfinite(loss) else None,
        )

    def _state(self) -> dict[str, Any]:
        """The counters of a checkpoint."""
        return {
            "vector_step": self.vector_step,
            "seconds": self.seconds,
            "joules": self.joules,
            "last": list(self.board.last),
            "episodes": self.board.episodes,
            "interruptions": self.interruptions,
            "compile_seconds": self.compile_seconds,
            "samples": self.buffer.generator.get_state(),
        }

    def _continue(self, parts: dict[str, Any]) -> None:
        state = parts["run"]
        self.vector_step, self.seconds, self.joules = (
            int(state["vector_step"]),
            float(state["seconds"]),
            state["joules"],
        )
        self.board.last.extend(state["last"])
        self.board.episodes = int(state["episodes"])
        self.interruptions, self.compile_seconds = int(state["interruptions"]) + 1, float(state["compile_seconds"])
        self.buffer.generator.set_state(state["samples"])

    def _evaluate(self) -> NDArray[np.float64]:
        """Points of the first episode of every game, so that short episodes do not count more often than long ones."""
        environment = self.harness.environment
        first = self._on_device(environment.reset(self._game_seed() + SEED_STRIDE // 2))
        stack = FrameStack(first, self.settings.replay.stack)
        points = np.zeros(self.settings.games)
        playing = np.ones(self.settings.games, dtype=bool)
        for _ in range(EVALUATION_VECTOR_STEPS):
            environment.send(self.agent.act(stack.frames, EVALUATION_EPSILON))
            played = environment.receive()
            points[playing] += played.rewards[playing]
            playing &= ~played.ended
            if not playing.any():
                break
            stack.push(self._on_device(played.frames), self._on_device(played.ended))
        return points

    def _game_seed(self) -> int:
        """Seed of the first game; another one for a run that is continued."""
        return SEED_STRIDE * (self.seed + 1) + self.settings.games * self.interruptions

    def _on_device(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device, copy=True)  # an emulator may write into its arrays again
