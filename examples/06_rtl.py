"""From the simulator to gates: write a small fabric as Verilog and compare the two cycle by cycle.

    python examples/06_rtl.py [--folder runs/06] [--tiles 4]

Needs Amaranth and Yosys (the extra ``rtl``). Two SCUs are small enough for Amaranth's own simulator; for larger fabrics
leave out ``--backend``, and Verilator compiles the gates if it is installed.
"""

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SMALL_FABRIC = """\
# 2 SCUs with shallow queues, so that every kind of stall occurs in short programs.
base = "acf-512"
mesh_rows = 1
mesh_columns = 2
scus_per_cluster = 1
tile = 8
link_bytes = 16
queue_packets = 3
parallel_slots = 6
accumulator_tiles = 4
prefetch_packets = 4
"""


def acf_rtl(*words: str | Path) -> str:
    """Output of ``acf rtl``; an error ends the example."""
    done = subprocess.run((sys.executable, "-m", "acf", "rtl", *words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout.strip()


def main(folder: Path, tiles: int) -> None:
    """Emit, then lockstep on random programs of at most so many tiles along each dimension."""
    config, verilog = folder / "small.toml", folder / "small.v"
    config.write_text(SMALL_FABRIC)
    acf_rtl("emit", "--on", config, "--out", verilog)
    modules = sum(line.startswith("module ") for line in verilog.read_text().splitlines())
    print(f"{verilog.name}: {modules} modules, {verilog.stat().st_size // 1024} KiB of Verilog")
    print(acf_rtl("lockstep", "--on", config, "--programs", "2", "--tiles", str(tiles), "--backend", "pysim"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/06"))
    parser.add_argument("--tiles", type=int, default=4)
    chosen = parser.parse_args()
    missing = [name for name in ("amaranth", "pyosys") if find_spec(name) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed; pip install 'adaptive-compute-fabric[rtl]'")
        sys.exit(0)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    main(chosen.folder, chosen.tiles)
