"""`acf bench kernels`: checking the options, running the bench of one device, showing and keeping the figures."""

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch

from acf.bench.columns import cpu_step_part_table, cpu_step_table, kernel_ratio_table, step_ratio_table
from acf.bench.kernels import cpu
from acf.bench.kernels.cpu_step import CPU_STEP_BATCHES, CpuStep, CpuStepSpec
from acf.bench.kernels.cpu_step_process import measure_in_process
from acf.bench.kernels.roofline import Ceilings, roofline_page
from acf.errors import MissingDependencyError, SparsityError
from acf.files import write_whole
from acf.ops.cpu.call import INSTRUCTION_SETS
from acf.ops.triton.version import check_triton_on
from acf.options import option
from acf.records import record_text, write_record
from acf.records.provenance import processor_name
from acf.terminal import progress, show

KINDS = ("linear", "conv", "step", "network")
SECTIONS = ("correctness", "layers", "norms", "conv", "overhead", "steps", "bias", "narrow", "experts", "two_four")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

T = TypeVar("T")


def _written(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


@dataclass(frozen=True)
class CpuOptions:
    """The options of the CPU bench as typed: comma-separated lists."""

    blocks: str = option(_written(cpu.CpuBenchSpec.blocks), "CPU: block sizes.")
    sparsities: str = option(
        _written(cpu.CpuBenchSpec.sparsities), "CPU: shares of blocks to drop.", flags=("--sparsity",)
    )
    kinds: str = option(
        _written(cpu.CpuBenchSpec.kinds), "CPU: of linear, conv, step, network (whole steps of --networks)."
    )
    dtype: str = option("float32", "CPU: float32 or bfloat16.")
    rounds: int = option(cpu.CpuBenchSpec.rounds, "CPU: interleaved repetitions; the best counts.", min=1)
    instructions: str = option(
        "", "CPU: of portable, avx2, avx512, avx512bf16, amx; layers and networks with each in turn. Default: the best."
    )
    networks: str = option(_written(CPU_STEP_BATCHES), "CPU: networks whose steps --kinds network measures.")

    def spec(self) -> cpu.CpuBenchSpec:
        """The options checked and parsed."""
        if self.dtype not in DTYPES:
            raise SparsityError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPES)}; use one of these names")
        return cpu.CpuBenchSpec(
            blocks=tuple(_numbers(self.blocks, int, "blocks", lambda block: block >= 1)),
            sparsities=tuple(_numbers(self.sparsities, float, "sparsities", lambda share: 0.0 <= share < 1.0)),
            kinds=tuple(_names(self.kinds, KINDS, "kinds")),
            dtype=DTYPES[self.dtype],
            rounds=self.rounds,
            instructions=tuple(_names(self.instructions, INSTRUCTION_SETS, "instructions"))
            if self.instructions
            else (),
        )

    def network_specs(self) -> list[CpuStepSpec]:
        """One step for each network, block, sparsity and instruction set, if networks are asked for."""
        spec = self.spec()
        if "network" not in spec.kinds:
            return []
        return [
            CpuStepSpec(network, block, sparsity, self.dtype, self.rounds, instructions)
            for network in _names(self.networks, tuple(CPU_STEP_BATCHES), "networks")
            for block in spec.blocks
            for sparsity in spec.sparsities
            for instructions in spec.instructions or ("",)
        ]


def use_cuda(device: str) -> bool:
    """Whether to measure the GPU; refuses an unknown device, or a GPU that is not there."""
    if device not in ("auto", "cpu", "cuda"):
        raise SparsityError(f"device {device!r} is not one of auto, cpu, cuda; use one of these names")
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise MissingDependencyError("torch can use no GPU here; use --device cpu, or install a CUDA build of torch")
    if device == "cuda" and find_spec("triton") is None:
        raise MissingDependencyError("triton is not installed; the GPU kernels need it: pip install triton")
    if device != "cpu" and available and find_spec("triton") is not None:
        check_triton_on(torch.device("cuda"))
    return available and device != "cpu"


def run_on_cpu(options: CpuOptions, out: Path, as_json: bool) -> None:
    """Measure the native kernels; writes ``kernels-cpu.json`` and ``roofline-cpu.html``."""
    spec, network_specs = options.spec(), options.network_specs()
    load_before = os.getloadavg()[0]
    with progress(visible=not as_json) as on_progress:
        result = cpu.run_cpu_bench(spec, on_progress)
        networks: list[CpuStep] = []
        for network in network_specs:
            on_progress(f"{network.network}, blocks of {network.block}", len(networks) / len(network_specs))
            networks.append(measure_in_process(network))
    record = {
        "machine": {"processor": processor_name(), "torch": torch.__version__, "date": str(date.today())},
        "load": [load_before, os.getloadavg()[0]],
        "ceilings": asdict(result.ceilings),
        "threads": torch.get_num_threads(),
        "layers": [asdict(layer) | {"layer": str(layer.shape), "ratio": layer.total.ratio} for layer in result.layers],
        "steps": [asdict(step) | {"ratio": step.step.ratio} for step in result.steps],
        "networks": [step.record() for step in networks],
    }
    points = cpu.roofline_points(result.layers)
    _keep(out, "cpu", record, roofline_page(points, result.ceilings, "CPU kernels") if points else "")
    if as_json:
        print(record_text("kernels", record), end="")
        return
    _show_cpu_tables(result, networks)
    print(f"record and roofline: {out}")


def _show_cpu_tables(result: cpu.CpuBenchResult, networks: list[CpuStep]) -> None:
    if result.layers:
        show(kernel_ratio_table(result.layers))
    if result.steps:
        show(step_ratio_table(result.steps))
    if networks:
        show(cpu_step_table(networks))
        show(cpu_step_part_table(networks))


def run_on_cuda(sections: str, out: Path, as_json: bool) -> None:
    """Check and measure the Triton kernels; writes ``kernels-<device>.json`` and ``roofline-<device>.html``."""
    from acf.bench.kernels import gpu

    wanted = _names(sections, SECTIONS, "sections")
    name = torch.cuda.get_device_name().lower().replace("nvidia ", "").replace(" ", "-")
    latest: dict[str, Any] = {}

    def on_record(record: dict[str, Any]) -> None:
        latest.update(record)
        done = [section for section in wanted if section in record]
        on_progress(f"{len(done)} of {len(wanted)} sections measured", len(done) / len(wanted))
        points = gpu.roofline_points(record)
        measured = record["ceilings"]
        ceilings = Ceilings(measured["matmul_tflop_per_s"] * 1e12, measured["copy_tb_per_s"] * 1e12)
        _keep(out, name, record, roofline_page(points, ceilings, f"{record['device']}, bf16") if points else "")

    with progress(visible=not as_json) as on_progress:
        on_progress("compile", 0.0)
        gpu.run_gpu_bench(wanted, on_record)
    print(record_text("kernels", latest).rstrip() if as_json else "\n".join(gpu.summary_lines(latest)))


def _keep(out: Path, name: str, record: dict[str, Any], page: str) -> None:
    write_record(out / f"kernels-{name}.json", "kernels", record)
    if page:
        write_whole(out / f"roofline-{name}.html", page.encode())


def _numbers(text: str, kind: Callable[[str], T], name: str, valid: Callable[[T], bool]) -> Iterable[T]:
    for part in text.split(","):
        try:
            value = kind(part)
        except ValueError:
            raise SparsityError(f"{name}: {part!r} is no number; give numbers separated by commas") from None
        if not valid(value):
            raise SparsityError(f"{name}: {value} is out of range; blocks are at least 1, sparsities in [0, 1)")
        yield value


def _names(text: str, known: tuple[str, ...], name: str) -> list[str]:
    parts = text.split(",")
    for part in parts:
        if part not in known:
            raise SparsityError(f"{name}: {part!r} is not one of {', '.join(known)}; use these, separated by commas")
    return parts
