"""How several benches write a cell."""

from acf.columns import Format, si_format

SECONDS = si_format("s")
NUMBER = Format(str)
WHOLE_PERCENT = Format(lambda share: f"{share:.0%}")
MOST_LOST = Format(lambda lost: f"{lost[0]} {lost[1]:.1%}")
"""A reason and the share of MAC slots it cost."""
