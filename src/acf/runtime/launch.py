"""Launching programs."""

from collections.abc import Sequence

from acf.runtime.copy import check_regions, region_of
from acf.runtime.device import Device
from acf.runtime.errors import IllegalAddressError, InvalidValueError
from acf.runtime.memory import Buffer, Region
from acf.runtime.program import Program
from acf.runtime.stream import Stream


def launch(program: Program, arguments: Sequence[Buffer | Region] = (), stream: Stream | None = None) -> None:
    """Run ``program`` on the device of ``stream``, or else of its arguments, after everything submitted to the stream.

    ``arguments``: device memory for `Program.arguments`, operands first, then the result. Returns at once; an error of
    the run is raised by the next synchronisation.
    """
    if not isinstance(program, Program):
        raise InvalidValueError(f"{type(program).__name__} is no program; compile a product with device.compile")
    regions = [region_of(each) for each in arguments]
    if stream is None and not regions:
        raise InvalidValueError("a program without arguments names no device; pass a stream")
    device = stream.device if stream is not None else regions[0].buffer.device
    check_regions(device, regions)
    _check_sizes(program, regions)
    exact = [_exact(region, each.nbytes) for region, each in zip(regions, program.arguments, strict=True)]
    device._launch(program, exact, stream)


def synchronize(device: Device) -> None:
    """Wait until everything submitted to a device is complete; raise the error of an operation that failed, once."""
    device.synchronize()


def _exact(region: Region, nbytes: int) -> Region:
    return Region(region.buffer, region.offset, nbytes)


def _check_sizes(program: Program, regions: list[Region]) -> None:
    wanted = program.arguments
    if len(regions) != len(wanted):
        names = ", ".join(each.name for each in wanted) or "none"
        raise InvalidValueError(f"{program.name} takes {len(wanted)} arguments ({names}), not {len(regions)}")
    for region, argument in zip(regions, wanted, strict=True):
        if region.nbytes < argument.nbytes:
            raise IllegalAddressError(
                f"{argument} needs {argument.nbytes} bytes and its region has {region.nbytes}; allocate as many as "
                "program.arguments say"
            )
    if regions and any(_exact(regions[-1], wanted[-1].nbytes).overlaps(each) for each in regions[:-1]):
        raise InvalidValueError(f"the result {wanted[-1].name} overlaps an operand; give it memory of its own")
