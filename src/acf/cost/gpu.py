"""Peaks, rates and power of GPUs, published or measured."""

from acf.cost.figures import Figure

_V100 = "NVIDIA Tesla V100 GPU architecture whitepaper (2017), SXM2"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet (2024), SXM"
_MEASURED = "measured here, docs/results/kernels-h200.md: one H200, bf16"

GPU_FIGURES: dict[str, Figure] = {
    "v100_macs_per_cycle": Figure(80 * 8 * 64, "MAC/cycle", _V100 + ": 80 SMs x 8 tensor cores x 64 FP16 MACs"),
    "v100_clock_hz": Figure(1.53e9, "Hz", _V100 + ": boost clock of the 125 TFLOP/s"),
    "v100_sustained_share": Figure(
        83 / 125, "of peak", "Markidis et al., IPDPSW 2018: 83 TFLOP/s with tensor cores of the V100's 125"
    ),
    "v100_dram_bytes_per_s": Figure(900e9, "B/s", _V100 + ": HBM2, peak"),
    "v100_board_power_w": Figure(300.0, "W", _V100 + ": thermal design power"),
    "v100_idle_power_w": Figure(40.0, "W", "assumption: a V100 with a context and no kernel running"),
    "v100_die_mm2": Figure(815.0, "mm2", _V100 + ": GV100, the whole die"),
    "h200_macs_per_cycle": Figure(132 * 4 * 512, "MAC/cycle", _H200 + ": 132 SMs x 4 tensor cores x 512 BF16 MACs"),
    "h200_clock_hz": Figure(1.83e9, "Hz", _H200 + ": clock at which these MACs give the printed 989 TFLOP/s"),
    "h200_sustained_share": Figure(791 / 989, "of peak", _MEASURED + ", cuBLAS 791 TFLOP/s on 8192 cubed"),
    "h200_dram_bytes_per_s": Figure(4.2e12, "B/s", _MEASURED + ", copy; the datasheet prints 4.8 TB/s"),
    "h200_board_power_w": Figure(700.0, "W", _H200 + ": thermal design power"),
    "h200_idle_power_w": Figure(75.0, "W", "assumption: an H200 with a context and no kernel running"),
    "h200_die_mm2": Figure(
        814.0, "mm2", "NVIDIA H100 Tensor Core GPU architecture whitepaper (2022): GH100, the whole die, as in the H200"
    ),
    "launch_overhead_s": Figure(3e-6, "s", "assumption: one kernel queued behind another, nothing overlapped"),
}
"""What the rooflines are drawn from."""
