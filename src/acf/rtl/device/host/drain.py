"""A program that drains the accumulator banks: needed after a device was stopped in the middle of another one."""

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.encoding import pack_fields
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.host.image import REDUCES, START, LineWords, MemoryImage, lay_out_lines


def lay_out_cleaning(sizes: FabricSizes, axi: AxiSpec, base: int = 0) -> MemoryImage:
    """Two rounds on every mesh column that wait for no cluster and drain a full bank each; discard the results.

    A reset clears registers but no memories, and a bank must be empty when a program begins.
    """
    shape = sizes.shape
    flits, stride = sizes.most_sum_flits, shape.sum_flit_cycles
    fields = {
        "destinations": 0,
        "sum_flits": flits,
        "sum_stride": stride,
        "sum_cycles": shape.hop_cycles * shape.mesh_rows + flits * stride,
    }
    round_of_sums = pack_fields(sizes.command(shape.mesh_rows, serial=False), fields)
    commands: list[list[int]] = [[]] * shape.mesh_rows + [[round_of_sums] * 2] * shape.mesh_columns
    nothing: list[list[int]] = [[]] * len(commands)
    streams: list[list[int]] = [[]] * shape.mesh_rows + [[2 * flits]] * shape.mesh_columns
    settings = {"edge_cycles": 0, "column_groups": 1, "control": START | REDUCES}
    return lay_out_lines(LineWords(commands, nothing, streams, settings), sizes, axi, base)
