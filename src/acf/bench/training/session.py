"""A model, its optimizer and its topology, trained step by step as a user's own loop would."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

import acf
from acf.bench.training.schedule import Schedule
from acf.bench.training.task import Task, computing
from acf.bench.training.variant import Variant
from acf.errors import SparsityError
from acf.nn.plan import PlanOptions, SparsityPlan, plan
from acf.nn.replace import FilterFn
from acf.nn.sparsify_blocks import choose_layers, layout_of
from acf.train.graphed import GraphedStep

WARM_UP_STEPS = 1
"""Steps that follow `acf.warm_up` before the clock starts: the first one, eager, makes the optimizer's state."""


class TrainingSession:
    """``variant`` of ``task``, from ``seed``, with learning rates by ``schedule``."""

    def __init__(self, task: Task, variant: Variant, seed: int, schedule: Schedule) -> None:
        self.task, self.variant, self.schedule = task, variant, schedule
        self.device, self.sizes = task.device, variant.sizes(task.spec)
        torch.manual_seed(seed)
        self.model = task.model(self.sizes)
        started = time.perf_counter()
        self.plan = sparsify_fresh(self.model, variant, task)
        self.plan_seconds = time.perf_counter() - started if self.plan else 0.0
        self.fused_norms = len(acf.fuse_batch_norms_(self.model))
        self.replica = self.replicated(self.model)
        self.loss_fn = torch.compile(task.loss) if self.sizes.is_compiled(self.device) else task.loss
        self.optimizer = task.optimizer(self.model, self.sizes)
        policy, total_steps = variant.recipe.policy, schedule.total_steps
        self.topology = None if policy is None else acf.attach(self.replica, self.optimizer, policy(total_steps, seed))
        self.step_fn: Callable[..., Tensor] = self.step_function()
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.step = 0
        self.warm_up_steps = min(WARM_UP_STEPS, total_steps - 1)

    def replicated(self, model: nn.Module) -> nn.Module:
        """What the loss calls: the model itself, since one process trains."""
        return model

    def step_function(self) -> Callable[..., Tensor]:
        """What makes one optimizer step of a batch."""
        return GraphedStep(self._loss, self.optimizer, self.topology)

    def train_step(self) -> Tensor:
        """One optimizer step; its loss."""
        rate = self.sizes.rate * self.schedule.factor(self.step)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate)
        loss = self.step_fn(*self.task.batch(self.step, self.sizes.batch, self.generator))
        self.step += 1
        return loss

    def warm_up(self) -> float:
        """Compile, tune and capture, then train the first steps; the seconds that took, nearly all compilation."""
        started = time.perf_counter()
        example = self.task.batch(0, self.sizes.batch, torch.Generator(self.device).manual_seed(0))
        acf.warm_up(self.model, self.step_fn, *example)
        while self.step < self.warm_up_steps:
            self.train_step()
        self.synchronize()
        return time.perf_counter() - started

    def compile_seconds(self, warm_up_seconds: float, step_seconds: float) -> float:
        """What planning and the warm-up took beyond the time of the warm-up's steps."""
        return self.plan_seconds + max(0.0, warm_up_seconds - self.warm_up_steps * step_seconds)

    def measure(self) -> float:
        """Quality on held-out data."""
        return self.task.measure(self.model)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @property
    def moves(self) -> int:
        """Steps after which blocks have moved."""
        return 0 if self.topology is None else len({change.step for change in self.topology.changes})

    def close(self) -> None:
        """Let go of hooks and compiled code, so that the next session starts like the first."""
        if self.topology is not None:
            self.topology.detach()
        if self.sizes.is_compiled(self.device):
            torch.compiler.reset()

    def _loss(self, *batch: Tensor) -> Tensor:
        with computing(self.sizes, self.device):
            return self.loss_fn(self.replica, *batch)


def sparsify_fresh(model: nn.Module, variant: Variant, task: Task) -> SparsityPlan | None:
    """Make a freshly initialised model sparse, its weights rescaled so that outputs keep their variance.

    Returns the plan that gave the densities, where there was one.
    """
    sparsity = variant.recipe.sparsity
    if sparsity is None:
        return None
    if isinstance(sparsity, acf.BlockSparsity):
        sparsity = replace(sparsity, rescale=True)
    filter_fn = _filter(variant)
    if not isinstance(sparsity, acf.BlockSparsity) or sparsity.distribution != "cost":
        acf.sparsify_(model, sparsity, filter_fn)
        return None
    planned = _plan(model, variant, sparsity, task, filter_fn)
    acf.sparsify_(model, planned)
    return planned


def refuse_unfit(task: Task, variants: Iterable[Variant]) -> None:
    """Refuse settings of another task, blocks that do not divide a layer and steps that no graph can hold, up front."""
    for variant in variants:
        sparsity, sizes = variant.recipe.sparsity, variant.sizes(task.spec)
        if variant.is_dense and sizes.experts and task.device.type == "cuda":
            raise SparsityError(
                f"{variant.name}: dense experts wait for the host, and steps on a GPU are CUDA graphs; keep all blocks "
                "instead: static-0/block=128/dense_layers=router+query_key_value+attention_out, same other settings"
            )
        leaves_unfit_dense = bool(variant.plan.get("blocks"))  # as a plan that may choose among several blocks does
        if isinstance(sparsity, acf.BlockSparsity) and not leaves_unfit_dense:
            model = task.model(sizes)
            chosen, _ = choose_layers(model, sparsity, _filter(variant))
            try:
                for name, (layer, kind) in chosen.items():
                    layout_of(name, layer, kind, sparsity)
            except SparsityError as error:
                raise SparsityError(f"{variant.name}: {error}") from error


def _filter(variant: Variant) -> FilterFn | None:
    """Which layers a variant makes sparse, where it names some that stay dense."""
    kept_dense = variant.dense_layers
    return (lambda module, name: not any(part in name for part in kept_dense)) if kept_dense else None


def _plan(
    model: nn.Module, variant: Variant, sparsity: acf.BlockSparsity, task: Task, filter_fn: FilterFn | None
) -> SparsityPlan:
    """Densities by measured times; measured once, for they must not differ between seeds, rates and policies."""
    sizes = variant.sizes(task.spec)
    shape = replace(sizes, rate=0.0, weight_decay=0.0)
    key = (shape, str(task.device), sparsity, variant.speedup, variant.dense_layers, tuple(variant.plan.items()))
    known = _PLANS.get(key)
    if known is None:
        example = task.batch(0, sizes.batch, torch.Generator(task.device).manual_seed(0))[0]
        options = PlanOptions(cuda_graphs=task.device.type == "cuda", **variant.plan)  # type: ignore[arg-type]
        with computing(sizes, task.device):
            known = plan(model, example, sparsity, variant.speedup, filter_fn, options)
        _PLANS[key] = known
    return known


_PLANS: dict[tuple[object, ...], SparsityPlan] = {}
