"""Power and area of SparTANN as published, by component and precision."""

from acf.cost.figures import DRAM_PJ_PER_BIT, Figure

_FP32 = "SparTANN (Sim et al., ISLPED 2020), section 5.2.1: 65 nm, 250 MHz, T = 32, fp32"
_TABLE_2 = "SparTANN (Sim et al., ISLPED 2020), Table 2: 65 nm, 250 MHz"

SPARTANN_FIGURES: dict[str, Figure] = {
    "input_grad_w": Figure(0.20, "W", _FP32 + "; steady state, on chip, BP"),
    "weight_grad_w": Figure(0.29, "W", _FP32 + "; steady state, on chip, WU"),
    "control_share": Figure(0.10, "of the whole", _FP32 + "; controller and interconnect, area and power"),
    "skipping_share": Figure(0.03, "of the whole", _FP32 + "; sparsifier and index buffer, area and power"),
    "buffer_share": Figure(0.64, "of the whole", _FP32 + "; dense and output buffers in the worst case"),
    "alexnet_dram_bytes_per_s": Figure(1.95e9, "B/s", _FP32 + "; AlexNet training"),
    "googlenet_dram_bytes_per_s": Figure(3.93e9, "B/s", _FP32 + "; GoogleNet training"),
    "bf16_power_w": Figure(0.59, "W", _TABLE_2 + ", T = 64, bfloat16, DRAM included"),
    "area_mm2": Figure(4.74, "mm2", _FP32 + "; total"),
    "mac_area_mm2": Figure(0.69, "mm2", _FP32 + "; MAC array"),
    "buffer_area_mm2": Figure(3.56, "mm2", _FP32 + "; on-chip buffers of 4 + 1 + 68 + 32 KB"),
    "bf16_area_mm2": Figure(4.32, "mm2", _TABLE_2 + ", T = 64, bfloat16, buffers as wide as for fp32"),
}
"""What the authors print."""

SPARTANN_CLOCK_HZ = 250e6
"""SparTANN, section 5.2.1."""

SPARTANN_MACS = {4: 32, 2: 64}
"""T of the published designs, by bytes of a value: SparTANN, Table 2."""


def _value(name: str) -> float:
    return SPARTANN_FIGURES[name].value


def dram_power_w(bytes_per_s: float) -> float:
    """Watts of off-chip traffic at 160 pJ per byte."""
    return bytes_per_s * 8 * DRAM_PJ_PER_BIT["ddr"].value * 1e-12


def on_chip_power_w(phase: str, value_bytes: int) -> dict[str, float]:
    """Watts of a published design that is busy every cycle, by component.

    The 0.20 and 0.29 W are read as without the tenth of the total that the authors add for the controller: only
    so do 1.95 and 3.93 GB/s give their 0.58 and 0.92 W. MACs draw the same in both passes, set by the share of the
    buffers in the worst case; the forward pass is charged as the input gradient, which moves the same operands.
    """
    worst = _value("weight_grad_w") / (1 - _value("control_share"))
    busy = _value("weight_grad_w" if phase == "weight_grad" else "input_grad_w")
    total = busy / (1 - _value("control_share"))
    control_share = _value("control_share") + _value("skipping_share")
    mac = worst * (1 - control_share - _value("buffer_share"))
    parts = {"mac": mac, "sram": total * (1 - control_share) - mac, "control": total * control_share}
    scale = 1.0 if value_bytes == 4 else _bf16_scale()
    return {name: watts * scale for name, watts in parts.items()}


def skipping_power_w(phase: str, value_bytes: int) -> float:
    """Watts of the index buffer and the sparsifier, which a dense machine goes without."""
    return sum(on_chip_power_w(phase, value_bytes).values()) * _value("skipping_share")


def _bf16_scale() -> float:
    """On-chip power of the bf16 design over the fp32 one, mean of both passes.

    Derived: Table 2's total less DRAM at the mean traffic of the two networks, which half the bytes at twice the
    rate leave unchanged.
    """
    dram = dram_power_w((_value("alexnet_dram_bytes_per_s") + _value("googlenet_dram_bytes_per_s")) / 2)
    fp32 = (_value("input_grad_w") + _value("weight_grad_w")) / 2 / (1 - _value("control_share"))
    return (_value("bf16_power_w") - dram) / fp32


def area_mm2(value_bytes: int) -> dict[str, float]:
    """Square millimetres of a published design by component.

    For bf16 only the total is printed: buffers are the same, the rest keeps its share, MACs are what remains.
    """
    total = _value("area_mm2" if value_bytes == 4 else "bf16_area_mm2")
    buffers = _value("buffer_area_mm2")
    rest = (_value("area_mm2") - _value("mac_area_mm2") - buffers) / _value("area_mm2") * total
    return {"mac": total - buffers - rest, "sram": buffers, "control": rest}
