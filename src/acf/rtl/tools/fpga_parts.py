"""FPGA parts: the resources each has, with the source."""

from dataclasses import dataclass

from acf.cost import Figure

_OVERVIEW = "AMD DS890, UltraScale Architecture and Product Data Sheet: Overview, table of Virtex UltraScale+, VU9P"


@dataclass(frozen=True)
class FpgaPart:
    """Resources of an FPGA, by the names of `Resources`, and the family that Yosys synthesises for."""

    family: str
    resources: dict[str, Figure]


FPGA_PARTS: dict[str, FpgaPart] = {
    "vu9p": FpgaPart(
        "xcup",
        {
            "luts": Figure(1_182_240, "6-input LUTs", _OVERVIEW),
            "flip_flops": Figure(2_364_480, "flip-flops", _OVERVIEW),
            "dsps": Figure(6_840, "DSP48E2 slices", _OVERVIEW),
            "brams": Figure(2_160, "block RAMs of 36 Kb", _OVERVIEW),
            "urams": Figure(960, "UltraRAMs of 288 Kb", _OVERVIEW),
        },
    )
}
"""The parts that reports give shares of."""
