"""A training step as a CUDA graph, replayed without the host; a second graph scores and moves blocks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import ArgumentError, TopologyError, require_kind
from acf.nn.nm_masks import keep_nothing_of
from acf.ops.observe import observed_capture
from acf.train.captured_move import CapturedMove
from acf.train.controller import TopologyController, require_topology
from acf.train.optimizers import Optimizer, check_held, listed, parameters_of
from acf.train.restored import restored

EAGER_STEPS = 3
"""Steps that run before the capture, so that optimizer state exists and every kernel is compiled and tuned."""


class GraphedStep:
    """Forward, loss, backward and optimizer step, captured and replayed; steps that move blocks have a second graph.

    ``loss_fn(*batch)`` returns the loss; it may call a `torch.compile`d model. ``optimizer`` may be a list, whose
    members step in that order. The first steps run eagerly and train like any other; one of them scores absent blocks
    without effect. Then both graphs are captured. `warm_up` does all of this before training. Batches must keep shape,
    dtype and device, and learning rates must be tensors (``lr=torch.tensor(0.1)``), or the graph would keep the rate of
    the moment it was captured. On a CPU every step is eager.

    Blocks move by writing weights and indices in place, so captured graphs stay valid. Where a policy needs the host
    (random growth, a dense start that shrinks, several processes), the steps that score and move run eagerly. Where
    weights or optimizer state come to lie elsewhere (layers that shrink, ``optimizer.load_state_dict``), the graphs
    are captured again.

    A call returns the loss as a tensor that the next call overwrites.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Tensor],
        optimizer: Optimizer | Sequence[Optimizer],
        topology: TopologyController | None = None,
    ) -> None:
        if not callable(loss_fn):
            raise ArgumentError(
                f"loss_fn {loss_fn!r} cannot be called; pass the function that gives the loss of a batch"
            )
        require_kind(topology, (TopologyController, type(None)), "topology", "pass what acf.attach returned, or None")
        check_held({}, listed(optimizer))
        self.loss_fn = loss_fn
        self.optimizers = listed(optimizer)
        self.topology = topology
        if topology is not None:
            topology.scores_compiled = False  # the graphs of this class contain the observers
        self.eager_steps = 0
        self._plain: _Capture | None = None
        self._moving: _Capture | None = None
        self._states_at: list[Any] = []  # the optimizers' states and the weights' addresses that the graphs rely on
        self._weights_at: list[int] = []
        self._replayed: _Capture | None = None
        self._warm_states: list[dict[Tensor, dict[str, Any]]] | None = None

    def __call__(self, *batch: Tensor) -> Tensor:
        """Train on one batch; the loss, detached."""
        require_kind(batch[0] if batch else None, Tensor, "the first of the batch", "pass the tensors of a batch")
        if not batch[0].is_cuda or self.eager_steps < EAGER_STEPS:
            return self._run_eagerly(batch)
        if self._warm_states is not None:
            return self._run_first(batch)
        if self._plain is None:
            self._capture_all(batch)
        elif any(known is not each.state for known, each in zip(self._states_at, self.optimizers, strict=True)):
            return self._start_again(batch)
        if self.topology is not None and self.topology.scores_next:
            return self._move(batch)
        assert self._plain is not None
        loss = self._replay(self._plain, batch)
        if self.topology is not None:
            self.topology.count_step()
        return loss

    def warm_up(self, model: nn.Module, *batch: Tensor) -> None:
        """Compile, tune and capture everything on ``batch``, before training; nothing of the run changes.

        Parameters and buffers of ``model``, optimizer state, random state, topology and step count are as before when
        it returns. Where the optimizer has no state yet, the next step runs eagerly and makes it.
        """
        if self.eager_steps:
            raise TopologyError(
                f"warm_up comes after {self.eager_steps} steps; call it before the first one, or leave it out"
            )
        require_topology(model, self.topology)
        kept = [_kept(optimizer) for optimizer in self.optimizers]
        with self._silent(), restored(model, self._parameters()):
            for _ in range(EAGER_STEPS - 1):
                self._train(batch)
            with nullcontext() if self.topology is None else self.topology.scoring():
                self._train(batch)
            if batch[0].is_cuda:
                self._capture_all(batch)
            else:
                self._zero_grad()
        self.eager_steps = EAGER_STEPS
        if batch[0].is_cuda and not all(state for state, _ in kept):
            self._warm_states = [
                {key: dict(entries) for key, entries in optimizer.state.items()} for optimizer in self.optimizers
            ]
        for optimizer, (state, groups) in zip(self.optimizers, kept, strict=True):
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                _write_back(group, values)
            if state:
                _write_back(optimizer.state, state)
            else:
                optimizer.state.clear()

    def _run_first(self, batch: tuple[Tensor, ...]) -> Tensor:
        """The first step after `warm_up`: an optimizer makes its state in its own way, and the graphs take it over."""
        warm, self._warm_states = self._warm_states or [], None
        loss = self._run_eagerly(batch)
        taken = [_take_over(each.state, entries) for each, entries in zip(self.optimizers, warm, strict=True)]
        if not all(taken):
            self._forget()
        return loss

    def _run_eagerly(self, batch: tuple[Tensor, ...]) -> Tensor:
        self.eager_steps += 1
        if self.topology is not None and self.eager_steps == EAGER_STEPS and not self.topology.scores_next:
            self.topology.rehearse()
        self._replayed = None
        return self._train(batch)

    def _train(self, batch: tuple[Tensor, ...]) -> Tensor:
        self._zero_grad()
        loss = self.loss_fn(*batch)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()

    def _move(self, batch: tuple[Tensor, ...]) -> Tensor:
        """A step that scores absent blocks and moves some, from its graph where the policy allows one."""
        assert self.topology is not None
        if self._moving is None and self.topology.moves_next:
            self._moving = self._capture_moving(batch)
        if self._moving is None or self._moving.move is None:
            loss = self._run_eagerly(batch)
            if self._addresses() != self._weights_at:
                self._forget()
            return loss
        self._moving.move.prepare(self.topology.step + 1)
        loss = self._replay(self._moving, batch)
        self.topology.count_captured_move(self._moving.move)
        return loss

    def _replay(self, capture: "_Capture", batch: tuple[Tensor, ...]) -> Tensor:
        if self._replayed is not capture:
            capture.show_gradients()
            self._replayed = capture
        return capture.replay(batch)

    def _capture_all(self, batch: tuple[Tensor, ...]) -> None:
        self._moving = self._capture_moving(batch)
        self._plain = self._capture(batch, None)
        self._states_at = [optimizer.state for optimizer in self.optimizers]
        self._weights_at = self._addresses()

    def _capture_moving(self, batch: tuple[Tensor, ...]) -> "_Capture | None":
        """The graph of a step that scores and moves; None where moving needs the host."""
        move = None if self.topology is None else self.topology.captured_move()
        if move is None or self.topology is None:
            return None
        with self.topology.scoring():
            return self._capture(batch, move)

    def _capture(self, batch: tuple[Tensor, ...], move: CapturedMove | None) -> "_Capture":
        for optimizer in self.optimizers:
            _require_capturable(optimizer)
        static = tuple(tensor.clone() for tensor in batch)
        self._zero_grad()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        other = self._plain or self._moving
        pool = other.graph.pool() if other else None
        with self._uncounted(), observed_capture(), torch.cuda.graph(graph, pool=pool):
            loss = self._train(static)
            if move is not None:
                move.record()
        keep_nothing_of(self._parameters())
        return _Capture(graph, static, loss, self._parameters(), move)

    def _start_again(self, batch: tuple[Tensor, ...]) -> Tensor:
        """A step with state that the graphs do not know; they are captured again."""
        self._forget()
        return self._run_eagerly(batch)

    def _forget(self) -> None:
        """Drop the graphs; one more step runs eagerly before they are captured again, so that kernels are tuned."""
        self._plain = self._moving = self._replayed = None
        self.eager_steps = EAGER_STEPS - 1

    def _addresses(self) -> list[int]:
        """Where the weights lie that a move may replace."""
        layers = {} if self.topology is None else self.topology.layers
        return [layer.weight.data_ptr() for layer in layers.values()]

    def _zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for optimizer in self.optimizers for parameter in parameters_of(optimizer)]

    def _uncounted(self) -> AbstractContextManager[None]:
        """A captured step does not run, so the controller must not count it."""
        return nullcontext() if self.topology is None else self.topology.paused()

    def _silent(self) -> AbstractContextManager[None]:
        return nullcontext() if self.topology is None else self.topology.suspended()


class _Capture:
    """A captured step: its graph, the batch it reads, the loss and gradients it writes, and the move in it."""

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        batch: tuple[Tensor, ...],
        loss: Tensor,
        parameters: Sequence[nn.Parameter],
        move: CapturedMove | None,
    ) -> None:
        self.graph, self.batch, self.loss, self.move = graph, batch, loss, move
        self.gradients = [(parameter, parameter.grad) for parameter in parameters]

    def show_gradients(self) -> None:
        """Let ``parameter.grad`` be what this graph writes."""
        for parameter, gradient in self.gradients:
            parameter.grad = gradient

    def replay(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Run the step on ``batch``."""
        for static, tensor in zip(self.batch, batch, strict=True):
            if tensor.shape != static.shape:
                raise TopologyError(
                    f"a batch has shape {list(tensor.shape)}, and the step was captured with {list(static.shape)}; "
                    "leave out the last, smaller batch (drop_last=True), or make another GraphedStep for it"
                )
            static.copy_(tensor)
        self.graph.replay()
        return self.loss


def _kept(optimizer: Optimizer) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    """Copies of an optimizer's state, and of the settings of its groups."""
    state = {key: _copied(entries) for key, entries in optimizer.state.items()}
    groups = optimizer.param_groups
    return state, [_copied({key: value for key, value in group.items() if key != "params"}) for group in groups]


def _copied(state: Any) -> Any:
    """Optimizer state with its tensors cloned."""
    if isinstance(state, Tensor):
        return state.clone()
    return {key: _copied(value) for key, value in state.items()} if isinstance(state, dict) else state


@torch.no_grad()
def _write_back(state: dict[Any, Any], kept: dict[Any, Any]) -> None:
    """Put the values of ``kept`` into ``state``, tensors in place."""
    for key, value in kept.items():
        if isinstance(value, dict):
            _write_back(state[key], value)
        elif isinstance(value, Tensor):
            state[key].copy_(value)
        else:
            state[key] = value


@torch.no_grad()
def _take_over(state: dict[Any, dict[str, Any]], warm: dict[Tensor, dict[str, Any]]) -> bool:
    """Write ``state`` into the tensors of ``warm`` and let it consist of them; False, with nothing done, if unlike."""
    alike = state.keys() == warm.keys() and all(
        _forms(state[parameter]) == _forms(entries) for parameter, entries in warm.items()
    )
    for parameter, entries in warm.items() if alike else ():
        for name, tensor in entries.items():
            if isinstance(tensor, Tensor):
                state[parameter][name] = tensor.copy_(state[parameter][name])
    return alike


def _forms(entries: dict[str, Any]) -> dict[str, Any]:
    """Shapes and dtypes of tensors; other entries, of which None alone is known to be the same in every step."""
    return {
        name: (value.shape, value.dtype, value.device) if isinstance(value, Tensor) else value is None or object()
        for name, value in entries.items()
    }


def _require_capturable(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose step a graph would keep as it is, or that torch does not let into one."""
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            raise TopologyError(
                f"the learning rate {group['lr']} is a number, which a CUDA graph would keep for good; build the "
                "optimizer with lr=torch.tensor(...) on the GPU and fused=True or capturable=True"
            )
        if group.get("capturable") is False:
            raise TopologyError(
                f"{type(optimizer).__name__} counts its steps on the host, which no CUDA graph can hold; build it with "
                "capturable=True"
            )
