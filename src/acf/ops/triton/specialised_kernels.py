"""The product of a dense matrix with a block-sparse weight for Hopper, its warps divided by what they do.

One warp of a program copies tiles into a ring of stages in shared memory; two groups of four warps multiply them.
Programs are as many as multiprocessors, and each takes output tiles until none is left: the tiles of the next output
are on their way while the last output is stored. Which tile is next, a counter says: groups have different numbers of
blocks, and programs that took every n-th tile would end far apart.

Written in Gluon, where layouts, barriers and copies are explicit. A stage is free while its barrier ``empty`` is ahead
of ``full``; barriers count phases, of which only the last bit is kept.
"""

import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from acf.ops.triton.jit import gluon_jit, gluon_kernel, jit

OUTPUTS: gl.constexpr = gl.constexpr(64)
"""Outputs of one group of warps: the matrix unit's fixed dimension."""

TOKENS: gl.constexpr = gl.constexpr(256)
"""Tokens of one group of warps: the matrix unit's widest dimension."""


@jit
def schedule_kernel(offsets: tl.tensor, schedule: tl.tensor, groups: tl.tensor, span: tl.constexpr) -> None:
    """``schedule [1 + groups]``: the counter at zero, then the groups by falling number of blocks."""
    ids = tl.arange(0, span)
    inside = ids < groups
    starts = tl.load(offsets + ids, mask=inside, other=0)
    ends = tl.load(offsets + ids + 1, mask=inside, other=0)
    keys = tl.sort(tl.where(inside, (ends - starts) * span + ids, -1), descending=True)
    tl.store(schedule + 1 + ids, keys % span, mask=inside)
    tl.store(schedule, 0)


@gluon_jit
def following(stage: gl.tensor, phase: gl.tensor, stages: gl.constexpr) -> gl.tensor:
    """The next stage of a ring, and its phase."""
    wraps = stage + 1 == stages
    return gl.where(wraps, 0, stage + 1), gl.where(wraps, phase ^ 1, phase)


@gluon_jit
def preceding(stage: gl.tensor, stages: gl.constexpr) -> gl.tensor:
    """The stage before ``stage``."""
    return gl.where(stage == 0, stages, stage) - 1


@gluon_jit
def send_job(
    jobs: gl.tensor, slot: gl.tensor, phase: gl.tensor, token: gl.tensor, output: gl.tensor, steps: gl.tensor
) -> gl.tensor:
    """Tell both groups of warps which output tile comes next; ``steps`` below zero when none does."""
    messages, full, empty = jobs
    field = gl.arange(0, 4, gl.BlockedLayout([1], [32], [1], [0]))
    mbarrier.wait(empty.index(slot), phase ^ 1)
    messages.index(slot).store(gl.where(field == 0, token, gl.where(field == 1, output, steps)))
    gl.thread_barrier()
    mbarrier.arrive(full.index(slot), count=1)
    return following(slot, phase, 2)


@gluon_jit
def receive_job(jobs: gl.tensor, slot: gl.tensor, phase: gl.tensor) -> gl.tensor:
    """First token, first output and number of steps of the next output tile, and the slot after it."""
    messages, full, empty = jobs
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    field = gl.arange(0, 4, layout)
    mbarrier.wait(full.index(slot), phase)
    message = messages.index(slot).load(layout)
    gl.thread_barrier()
    mbarrier.arrive(empty.index(slot), count=1)
    token = gl.sum(gl.where(field == 0, message, 0), 0)
    output = gl.sum(gl.where(field == 1, message, 0), 0)
    steps = gl.sum(gl.where(field == 2, message, 0), 0)
    slot, phase = following(slot, phase, 2)
    return token, output, steps, slot, phase


@gluon_jit
def copy_tiles(
    x: gl.tensor,
    weight: gl.tensor,
    walk: gl.tensor,
    schedule: gl.tensor,
    sizes: gl.tensor,
    ring: gl.tensor,
    jobs: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
) -> None:
    """The part of the copying warp: all tiles of all steps of this program's outputs, as stages get free."""
    offsets, slots, indices = walk
    groups, panels, sorted_panels = sizes
    xs, weights, full, empty = ring
    parts: gl.constexpr = 128 // block
    stage_bytes: gl.constexpr = (parts * TOKENS + block) * depth * 2
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    job, job_phase = gl.to_tensor(0), gl.to_tensor(0)
    first_sorted = (panels - sorted_panels) * groups
    tile = gl.program_id(0)
    while tile < panels * groups:
        group, panel = tile % groups, tile // groups
        if tile >= first_sorted:
            # Towards the end large groups come first, so that no program is left with one when the others are done.
            group = gl.load(schedule + 1 + (tile - first_sorted) // sorted_panels)
            panel = panels - sorted_panels + (tile - first_sorted) % sorted_panels
        token = panel * (parts * TOKENS)
        begin = gl.load(offsets + group)
        end = gl.load(offsets + group + 1)
        job, job_phase = send_job(jobs, job, job_phase, token, group * block, (end - begin) * (block // depth))
        slot = gl.load(slots + begin, mask=begin < end, other=0)
        column = gl.load(indices + slot) * block
        for position in range(begin, end):
            next_slot = gl.load(slots + position + 1, mask=position + 1 < end, other=0)
            next_column = gl.load(indices + next_slot) * block
            for chunk in gl.static_range(block // depth):
                mbarrier.wait(empty.index(stage), phase ^ 1)
                arrived = full.index(stage)
                mbarrier.expect(arrived, stage_bytes)
                corner = [slot * block, chunk * depth] if forward else [slot * block + chunk * depth, 0]
                tma.async_copy_global_to_shared(weight, corner, arrived, weights.index(stage))
                for part in gl.static_range(parts):
                    corner = [token + part * TOKENS, column + chunk * depth]
                    tma.async_copy_global_to_shared(x, corner, arrived, xs.index(stage * parts + part))
                stage, phase = following(stage, phase, stages)
            slot = next_slot
            column = next_column
        if parts == 2:
            # A stage without tiles: the output passes through it.
            mbarrier.wait(empty.index(stage), phase ^ 1)
            mbarrier.arrive(full.index(stage), count=1)
            stage, phase = following(stage, phase, stages)
        tile = gl.atomic_add(schedule, 1, sem="relaxed") + gl.num_programs(0)
    send_job(jobs, job, job_phase, 0, 0, -1)


@gluon_jit
def multiply_tiles(
    member: gl.constexpr,
    out: gl.tensor,
    ring: gl.tensor,
    jobs: gl.tensor,
    staging: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
) -> None:
    """The part of one of the two groups of warps: 64 outputs for 256 tokens of every output tile.

    Of blocks of 128 each takes half of the outputs for the same tokens, of blocks of 64 all of them for its own.
    """
    xs, weights, full, empty = ring
    parts: gl.constexpr = 128 // block
    part: gl.constexpr = member if parts == 2 else 0
    first_output: gl.constexpr = 0 if parts == 2 else member * OUTPUTS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TOKENS, 16])
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    held = gl.to_tensor(-1)
    token, output, steps, job, job_phase = receive_job(jobs, gl.to_tensor(0), gl.to_tensor(0))
    while steps >= 0:
        accumulator = gl.zeros([OUTPUTS, TOKENS], gl.float32, layout)
        for step in range(steps):
            mbarrier.wait(full.index(stage), phase)
            if forward:
                weight_tile = weights.index(stage).slice(first_output, OUTPUTS, dim=0)
            else:
                weight_tile = weights.index(stage).slice(first_output, OUTPUTS, dim=1).permute((1, 0))
            x_tile = xs.index(stage * parts + part).permute((1, 0))
            accumulator = warpgroup_mma(weight_tile, x_tile, accumulator, is_async=True)
            accumulator = warpgroup_mma_wait(1, deps=[accumulator])  # the step before: its stage is free
            mbarrier.arrive(empty.index(preceding(stage, stages)), count=1, pred=step > 0)
            if parts == 2 and (step == 0) & (held >= 0):
                tma.store_wait(0)
                mbarrier.arrive(empty.index(held), count=1)
                held = gl.to_tensor(-1)
            stage, phase = following(stage, phase, stages)
        accumulator = warpgroup_mma_wait(0, deps=[accumulator])
        mbarrier.arrive(empty.index(preceding(stage, stages)), count=1, pred=steps > 0)
        result = accumulator.to(out.dtype)
        corner_token, corner_output = token + part * TOKENS, output + first_output
        if parts == 2:
            tma.store_wait(0)
            gl.thread_barrier()
            mbarrier.arrive(empty.index(gl.maximum(held, 0)), count=1, pred=held >= 0)
            mbarrier.wait(full.index(stage), phase)
            buffer = xs.index(stage * parts + part)
            buffer.store(result.permute((1, 0)))
            fence_async_shared()
            gl.thread_barrier()
            tma.async_copy_shared_to_global(out, [corner_token, corner_output], buffer)
            held = stage
            stage, phase = following(stage, phase, stages)
        else:
            halves = result.reshape([OUTPUTS, 2, TOKENS // 2]).permute((0, 2, 1)).split()
            buffer = staging.index(member)
            for half in gl.static_range(2):
                tma.store_wait(0)
                gl.thread_barrier()
                buffer.store(halves[half].permute((1, 0)))
                fence_async_shared()
                gl.thread_barrier()
                corner = [corner_token + half * (TOKENS // 2), corner_output]
                tma.async_copy_shared_to_global(out, corner, buffer)
        token, output, steps, job, job_phase = receive_job(jobs, job, job_phase)
    tma.store_wait(0)


@gluon_kernel("groups", "panels", "sorted_panels")
def product_specialised_kernel(
    x: gl.tensor,
    weight: gl.tensor,
    out: gl.tensor,
    offsets: gl.tensor,
    slots: gl.tensor,
    indices: gl.tensor,
    schedule: gl.tensor,
    groups: gl.tensor,
    panels: gl.tensor,
    sorted_panels: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
) -> None:
    """As `product_descriptor_kernel`, for blocks of 128 and tiles of 256 tokens, or blocks of 64 and tiles of 512.

    ``panels`` counts the tiles of tokens; within the last ``sorted_panels`` of them large groups come first.
    """
    parts: gl.constexpr = 128 // block
    xs = gl.allocate_shared_memory(x.dtype, [stages * parts, TOKENS, depth], x.layout)
    weight_shape: gl.constexpr = [stages, block, depth] if forward else [stages, depth, block]
    weights = gl.allocate_shared_memory(x.dtype, weight_shape, weight.layout)
    staging = xs
    if parts == 1:
        staging = gl.allocate_shared_memory(x.dtype, [2, TOKENS // 2, OUTPUTS], out.layout)
    messages = gl.allocate_shared_memory(gl.int32, [2, 4], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    job_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    job_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(stages):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    for slot in gl.static_range(2):
        mbarrier.init(job_full.index(slot), count=1)
        mbarrier.init(job_empty.index(slot), count=2)
    fence_async_shared()
    ring = (xs, weights, full, empty)
    jobs = (messages, job_full, job_empty)
    walk = (offsets, slots, indices)
    sizes = (groups, panels, sorted_panels)
    # Registers: 168 for each of 12 warps, of which 4 hardly need any.
    gl.warp_specialize(
        [
            (multiply_tiles, (0, out, ring, jobs, staging, block, depth, stages, forward)),
            (multiply_tiles, (1, out, ring, jobs, staging, block, depth, stages, forward)),
            (copy_tiles, (x, weight, walk, schedule, sizes, ring, jobs, block, depth, stages, forward)),
        ],
        [4, 1],
        [232, 40],
    )
