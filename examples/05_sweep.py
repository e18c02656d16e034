"""Sweep the sizes of a machine: variants of `acf-512` on one captured step, as a table.

    python examples/05_sweep.py

A Spec is a frozen dataclass; `acf.sim.spec` gives a variant of a shipped one. A variant that cannot be built fails
alone.
"""

from itertools import product

import torch
from torch import nn

import acf
from acf.sim import spec

QUEUES = (2, 4, 16)
LINK_BYTES = (16, 32, 48)


def capture_step() -> acf.Trace:
    """One training step of a block-sparse MLP, 90 %."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.9, block=16))
    x = torch.randn(256, 512)
    with acf.capture(model) as trace:
        (model(x) - x).square().mean().backward()
    return trace


def main() -> None:
    """Every combination of queue length and link width."""
    trace = capture_step()
    usual = acf.simulate(trace, "acf-512")
    print(f"{'queue':>6} {'link':>5} {'cycles':>9} {'to acf-512':>10} {'U':>6} {'energy':>9}")
    for queue_packets, link_bytes in product(QUEUES, LINK_BYTES):
        try:
            result = acf.simulate(trace, spec("acf-512", queue_packets=queue_packets, link_bytes=link_bytes))
        except acf.AcfError as error:
            print(f"{queue_packets:6} {link_bytes:5} {error}")
            continue
        print(
            f"{queue_packets:6} {link_bytes:5} {result.cycles:9,} {result.speedup_over(usual):9.2f}x "
            f"{result.utilization:6.1%} {result.energy_j * 1e6:6.0f} uJ"
        )


if __name__ == "__main__":
    main()
