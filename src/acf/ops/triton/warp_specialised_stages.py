"""What producer and consumers of a warp-specialised kernel share: a ring of stages, and a queue of output tiles.

Each stage has two mbarriers: the producer waits for ``empty`` and the copy engine completes ``full``. An mbarrier's
phase is one bit, which flips each time the ring wraps.
"""

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from acf.ops.triton.jit import gluon_jit

OUTPUTS: gl.constexpr = gl.constexpr(64)
"""Outputs of one consumer: M of a wgmma instruction."""

TOKENS: gl.constexpr = gl.constexpr(256)
"""Tokens of one consumer: the largest N of a wgmma instruction."""

QUARTER: gl.constexpr = gl.constexpr(64)
"""Tokens of a quarter of a consumer's accumulator: the epilogue takes quarters one after the other."""


@gluon_jit
def following(stage: gl.tensor, phase: gl.tensor, stages: gl.constexpr) -> gl.tensor:
    """The next stage of the ring, and its phase."""
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
    """Send both consumers the next output tile; a negative ``steps`` ends them."""
    messages, full, empty = jobs
    field = gl.arange(0, 4, gl.BlockedLayout([1], [32], [1], [0]))
    mbarrier.wait(empty.index(slot), phase ^ 1)
    messages.index(slot).store(gl.where(field == 0, token, gl.where(field == 1, output, steps)))
    gl.thread_barrier()
    mbarrier.arrive(full.index(slot), count=1)
    return following(slot, phase, 2)


@gluon_jit
def receive_job(jobs: gl.tensor, slot: gl.tensor, phase: gl.tensor) -> gl.tensor:
    """First token, first output and number of k-steps of the next output tile, and the queue slot after it."""
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
def quarters_of(tile: gl.tensor) -> gl.tensor:
    """``tile [outputs, tokens]`` as four quarters, by tokens."""
    half: gl.constexpr = TOKENS // 2
    left, right = tile.reshape([OUTPUTS, 2, half]).permute((0, 2, 1)).split()
    first, second = left.reshape([OUTPUTS, 2, QUARTER]).permute((0, 2, 1)).split()
    third, fourth = right.reshape([OUTPUTS, 2, QUARTER]).permute((0, 2, 1)).split()
    return first, second, third, fourth


@gluon_jit
def make_jobs() -> gl.tensor:
    """A queue of two output tiles from the producer to the consumers, with its barriers."""
    messages = gl.allocate_shared_memory(gl.int32, [2, 4], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(2):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    return messages, full, empty


@gluon_jit
def make_stages(stages: gl.constexpr) -> gl.tensor:
    """The barriers of the ring: ``full`` (operands have arrived) and ``empty`` (both consumers are done)."""
    full = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(stages):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    return full, empty


@gluon_jit
def make_ring(
    x: gl.tensor,
    weight: gl.tensor,
    block: gl.constexpr,
    depth: gl.constexpr,
    stages: gl.constexpr,
    forward: gl.constexpr,
) -> gl.tensor:
    """The ring of a product: per stage one or two x tiles of 256 tokens, a weight tile, and the barriers."""
    parts: gl.constexpr = 128 // block
    xs = gl.allocate_shared_memory(x.dtype, [stages * parts, TOKENS, depth], x.layout)
    weight_shape: gl.constexpr = [stages, block, depth] if forward else [stages, depth, block]
    weights = gl.allocate_shared_memory(x.dtype, weight_shape, weight.layout)
    full, empty = make_stages(stages)
    return xs, weights, full, empty
