"""The product of a dense matrix with a block-sparse weight for Hopper: persistent, warp-specialised kernels.

The producer, one warp, copies tiles into a ring of stages in shared memory; the consumers, two warp groups, multiply
them. There is one program per multiprocessor, and it takes output tiles until none is left: the operands of the next
tile are copied during the epilogue of the last. An atomic counter hands out the tiles, because block groups differ in
length and a static assignment would leave programs idle at the end (wave quantisation).

Written in Gluon, where layouts, barriers and copies are explicit.
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
from acf.ops.triton.warp_specialised_epilogue import WORDS, activate, load_bias, load_slopes, scale, slope_place
from acf.ops.triton.warp_specialised_stages import (
    OUTPUTS,
    QUARTER,
    TOKENS,
    following,
    make_jobs,
    make_ring,
    preceding,
    quarters_of,
    receive_job,
    send_job,
)


@jit
def schedule_kernel(offsets: tl.tensor, schedule: tl.tensor, groups: tl.tensor, span: tl.constexpr) -> None:
    """``schedule [1 + groups]``: the counter, zeroed, then the groups by descending number of blocks."""
    ids = tl.arange(0, span)
    inside = ids < groups
    starts = tl.load(offsets + ids, mask=inside, other=0)
    ends = tl.load(offsets + ids + 1, mask=inside, other=0)
    keys = tl.sort(tl.where(inside, (ends - starts) * span + ids, -1), descending=True)
    tl.store(schedule + 1 + ids, keys % span, mask=inside)
    tl.store(schedule, 0)


@gluon_jit
def next_tile(tile: gl.tensor, schedule: gl.tensor, sizes: gl.tensor) -> gl.tensor:
    """Block group and token panel of the ``tile``-th output tile."""
    groups, panels, sorted_panels = sizes
    first_sorted = (panels - sorted_panels) * groups
    group, panel = tile % groups, tile // groups
    if tile >= first_sorted:
        # The last panels go longest first (LPT): no program is left with a long group when the others are done.
        group = gl.load(schedule + 1 + (tile - first_sorted) // sorted_panels)
        panel = panels - sorted_panels + (tile - first_sorted) % sorted_panels
    return group, panel


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
    """The producer: all tiles of all k-steps of this program's outputs, as stages become free."""
    offsets, slots, indices = walk
    xs, weights, full, empty = ring
    parts: gl.constexpr = 128 // block
    stage_bytes: gl.constexpr = (parts * TOKENS + block) * depth * 2
    stage, phase = gl.to_tensor(0), gl.to_tensor(0)
    job, job_phase = gl.to_tensor(0), gl.to_tensor(0)
    tile = gl.program_id(0)
    while tile < sizes[0] * sizes[1]:
        group, panel = next_tile(tile, schedule, sizes)
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
            # A stage without operands: the consumers stage their output in it.
            mbarrier.wait(empty.index(stage), phase ^ 1)
            mbarrier.arrive(full.index(stage), count=1)
            stage, phase = following(stage, phase, stages)
        tile = gl.atomic_add(schedule, 1, sem="relaxed") + gl.num_programs(0)
    send_job(jobs, job, job_phase, 0, 0, -1)


@gluon_jit
def sum_steps(
    member: gl.constexpr,
    ring: gl.tensor,
    stage: gl.tensor,
    phase: gl.tensor,
    held: gl.tensor,
    steps: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
) -> gl.tensor:
    """Multiply and accumulate the next ``steps`` stages: 64 outputs of 256 tokens; also gives the stage after them.

    With blocks of 128 each consumer takes half of the outputs of the same tokens, with blocks of 64 all outputs of its
    own tokens. ``held`` is the stage that the previous output still occupies, or negative.
    """
    xs, weights, full, empty = ring
    parts: gl.constexpr = 128 // block
    part: gl.constexpr = member if parts == 2 else 0
    first_output: gl.constexpr = 0 if parts == 2 else member * OUTPUTS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TOKENS, 16])
    accumulator = gl.zeros([OUTPUTS, TOKENS], gl.float32, layout)
    for step in range(steps):
        mbarrier.wait(full.index(stage), phase)
        if forward:
            weight_tile = weights.index(stage).slice(first_output, OUTPUTS, dim=0)
        else:
            weight_tile = weights.index(stage).slice(first_output, OUTPUTS, dim=1).permute((1, 0))
        x_tile = xs.index(stage * parts + part).permute((1, 0))
        accumulator = warpgroup_mma(weight_tile, x_tile, accumulator, is_async=True)
        accumulator = warpgroup_mma_wait(1, deps=[accumulator])  # the previous step is done: its stage is free
        mbarrier.arrive(empty.index(preceding(stage, stages)), count=1, pred=step > 0)
        if (step == 0) & (held >= 0):
            tma.store_wait(0)
            mbarrier.arrive(empty.index(held), count=1)
            held = gl.to_tensor(-1)
        stage, phase = following(stage, phase, stages)
    accumulator = warpgroup_mma_wait(0, deps=[accumulator])
    mbarrier.arrive(empty.index(preceding(stage, stages)), count=1, pred=steps > 0)
    return accumulator, stage, phase, held


@gluon_jit
def let_go(ring: gl.tensor, held: gl.tensor) -> None:
    """Wait until the last output has left shared memory, and release the stage that it occupied."""
    tma.store_wait(0)
    gl.thread_barrier()
    mbarrier.arrive(ring[3].index(gl.maximum(held, 0)), count=1, pred=held >= 0)


@gluon_jit
def multiply_tiles(
    member: gl.constexpr,
    out: gl.tensor,
    extras: gl.tensor,
    ring: gl.tensor,
    jobs: gl.tensor,
    staging: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
    has_bias: gl.constexpr,
    finish: gl.constexpr,
) -> None:
    """One of the two consumers: accumulates every output tile and stores it through the epilogue ``finish``.

    "plain" stores the sums, "scaled" multiplies them by the slope, and the name of an activation stores that and its
    slope. ``extras`` are the bias, added first with ``has_bias``, the slope and the number of groups. Outputs of blocks
    of 64 are staged in the ring, those of 128 in two turns in ``staging``.
    """
    _, _, full, _ = ring
    parts: gl.constexpr = 128 // block
    part: gl.constexpr = member if parts == 2 else 0
    first_output: gl.constexpr = 0 if parts == 2 else member * OUTPUTS
    buffers = ring[0] if parts == 2 else staging
    count: gl.constexpr = buffers.shape[1] // QUARTER
    stage, phase, held = gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(-1)
    token, output, steps, job, job_phase = receive_job(jobs, gl.to_tensor(0), gl.to_tensor(0))
    while steps >= 0:
        corner_token, corner_output = token + part * TOKENS, output + first_output
        if finish != "plain":
            start = slope_place(extras[2], token, output, member, block)
        if finish == "scaled":
            slopes = load_slopes(extras[1], start)
        if has_bias:
            shift = load_bias(extras[0], corner_output)
        sums, stage, phase, held = sum_steps(member, ring, stage, phase, held, steps, block, depth, stages, forward)
        if has_bias:
            sums += shift[:, None]
        quarters = scale(sums, slopes, out.dtype) if finish == "scaled" else quarters_of(sums.to(out.dtype))
        for turn in gl.static_range(4 // count):
            let_go(ring, held)
            if parts == 2:
                mbarrier.wait(full.index(stage), phase)
                number = stage * 2 + member
                held = stage
                stage, phase = following(stage, phase, stages)
            else:
                number = gl.to_tensor(member)
            buffer = buffers.index(number)
            for quarter in gl.static_range(count):
                buffer.slice(quarter * QUARTER, QUARTER, dim=0).store(quarters[turn * count + quarter].permute((1, 0)))
            if finish != "plain" and finish != "scaled":
                gl.thread_barrier()
                activate(buffers, number, extras[1], start + turn * count * WORDS, out.dtype, finish)
            fence_async_shared()
            gl.thread_barrier()
            tma.async_copy_shared_to_global(out, [corner_token + turn * count * QUARTER, corner_output], buffer)
        token, output, steps, job, job_phase = receive_job(jobs, job, job_phase)
    tma.store_wait(0)


@gluon_jit
def run_product(
    x: gl.tensor,
    weight: gl.tensor,
    out: gl.tensor,
    extras: gl.tensor,
    walk: gl.tensor,
    schedule: gl.tensor,
    sizes: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
    has_bias: gl.constexpr,
    finish: gl.constexpr,
) -> None:
    """Allocate the ring and start the producer and the consumers."""
    ring = make_ring(x, weight, block, depth, stages, forward)
    jobs = make_jobs()
    staging = ring[0]
    if block == 128:
        staging = gl.allocate_shared_memory(x.dtype, [2, TOKENS // 2, OUTPUTS], out.layout)
    fence_async_shared()
    # Registers: 168 per thread of 12 warps, reallocated from the producer's 4 to the consumers' 8.
    gl.warp_specialize(
        [
            (multiply_tiles, (0, out, extras, ring, jobs, staging, block, depth, stages, forward, has_bias, finish)),
            (multiply_tiles, (1, out, extras, ring, jobs, staging, block, depth, stages, forward, has_bias, finish)),
            (copy_tiles, (x, weight, walk, schedule, sizes, ring, jobs, block, depth, stages, forward)),
        ],
        [4, 1],
        [232, 40],
    )


@gluon_kernel("groups", "panels", "sorted_panels")
def product_warp_specialised_kernel(
    x: gl.tensor,
    weight: gl.tensor,
    out: gl.tensor,
    bias: gl.tensor,
    offsets: gl.tensor,
    slots: gl.tensor,
    indices: gl.tensor,
    schedule: gl.tensor,
    groups: gl.tensor,
    panels: gl.tensor,
    sorted_panels: gl.tensor,
    has_bias: gl.constexpr,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
) -> None:
    """As `product_descriptor_kernel`, for blocks of 128 and tiles of 256 tokens, or blocks of 64 and tiles of 512.

    ``panels`` counts the token tiles; the last ``sorted_panels`` of them are taken longest group first.
    """
    walk, sizes, extras = (offsets, slots, indices), (groups, panels, sorted_panels), (bias, bias, groups)
    run_product(x, weight, out, extras, walk, schedule, sizes, block, depth, stages, forward, has_bias, "plain")


@gluon_kernel("groups", "panels", "sorted_panels")
def activation_warp_specialised_kernel(
    x: gl.tensor,
    weight: gl.tensor,
    activated: gl.tensor,
    slope: gl.tensor,
    bias: gl.tensor,
    offsets: gl.tensor,
    slots: gl.tensor,
    indices: gl.tensor,
    schedule: gl.tensor,
    groups: gl.tensor,
    panels: gl.tensor,
    sorted_panels: gl.tensor,
    has_bias: gl.constexpr,
    activation: gl.constexpr,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
) -> None:
    """As `product_activation_kernel`, in the tiles of the product above; ``slope`` in words of four bytes."""
    walk, sizes, extras = (offsets, slots, indices), (groups, panels, sorted_panels), (bias, slope, groups)
    run_product(x, weight, activated, extras, walk, schedule, sizes, block, depth, stages, True, has_bias, activation)


@gluon_kernel("groups", "panels", "sorted_panels")
def scaled_warp_specialised_kernel(
    x: gl.tensor,
    weight: gl.tensor,
    slope: gl.tensor,
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
) -> None:
    """As `product_scaled_kernel`, by the ``slope`` that `activation_warp_specialised_kernel` stored."""
    walk, sizes, extras = (offsets, slots, indices), (groups, panels, sorted_panels), (slope, slope, groups)
    run_product(x, weight, out, extras, walk, schedule, sizes, block, depth, stages, False, False, "scaled")
