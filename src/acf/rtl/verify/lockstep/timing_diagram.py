"""A timing diagram in plain text, drawn from the record of a run."""

from acf.rtl.verify.lockstep.record import Record

MARKS: dict[str, str] = {
    "send": "S",
    "serial_arrival": "A",
    "parallel_arrival": "B",
    "leave": "L",
    "empty": "E",
}


def timing_diagram(record: Record, first: int, last: int) -> str:
    """Events of cycles ``first`` to ``last`` by place; the line of an SCU is ``#`` while it works on a tile.

    ``S`` a packet is sent, ``A`` a serial tile and ``B`` a block has arrived, ``[`` an SCU begins a tile, ``L`` a flit
    of results leaves, ``E`` a bank is empty again.
    """
    cycles = range(first, last)
    marks = "".join("|" if cycle % 10 == 0 else "." for cycle in cycles)
    lines = [f"{'cycle ' + str(first):18} {marks} {last}"]
    for name, mark in MARKS.items():
        for place, times in enumerate(record.events[name]):
            if any(first <= time < last for time in times):
                row = "".join(mark if cycle in set(times) else "." for cycle in cycles)
                lines.append(f"{name.replace('_arrival', '') + ' ' + str(place):18} {row}")
    for scu, (begins, ends) in enumerate(zip(record.events["begin"], record.events["end"], strict=True)):
        cells = ["."] * len(cycles)
        for begin, end in zip(begins, ends, strict=True):
            for cycle in range(max(begin, first), min(end, last)):
                cells[cycle - first] = "[" if cycle == begin else "#"
        lines.append(f"{'SCU ' + str(scu):18} {''.join(cells)}")
    return "\n".join(lines)
