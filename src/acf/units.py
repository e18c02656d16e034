"""Numbers written for people: SI prefixes and bytes."""

PREFIXES = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "u"),
    (1e-9, "n"),
    (1e-12, "p"),
)
"""SI prefixes as (factor, letter), largest first; micro as ``u``, which every terminal shows."""


def si(value: float, unit: str = "") -> str:
    """``value`` to three digits with an SI prefix.

    >>> si(16.384e12, "FLOP/s"), si(0.00025, "J"), si(0.9996, "s"), si(0, "J")
    ('16.4 TFLOP/s', '250 uJ', '1 s', '0 J')
    """
    for factor, prefix in PREFIXES:
        if abs(value) >= 0.9995 * factor:  # 999.6 m would be written 1e+03 m
            return f"{value / factor:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def binary_bytes(value: float) -> str:
    """A number of bytes in binary units.

    >>> binary_bytes(3 * 2**20)
    '3.0 MiB'
    """
    for factor, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{value / factor:.1f} {name}"
    return f"{value:.0f} B"
