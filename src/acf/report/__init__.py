"""Simulation results and training records as one HTML file that opens without a network.

Importing a subpackage binds it in its parent, so ``acf.report`` names this package once it is imported. The package is
therefore callable and acts as the public function. Plotly is imported when a page is written.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from acf.errors import ReportError, require_kind
from acf.files import write_whole

if TYPE_CHECKING:
    from acf.metrics import AblationRecord, TrainingRecord
    from acf.report.extra import ExtraSection
    from acf.sim.result import Result

__all__ = ["report"]


def report(
    results: "Sequence[Result]",
    path: str | Path,
    *,
    training: "Sequence[TrainingRecord]" = (),
    ablations: "Sequence[AblationRecord]" = (),
    extra: "Sequence[ExtraSection]" = (),
    title: str = "ACF report",
) -> Path:
    """Write results, training records and ablations as one HTML file that opens without a network; returns its path.

    Speedups are over the workload of the first result; a training record describes the workload of its label. ``extra``
    are sections of other packages, such as those of `acf.sweep.page`.
    """
    require_kind(results, Sequence, "results", "pass a list of what acf.simulate returned")
    if not results and not training and not ablations and not extra:
        raise ReportError(
            "0 results, 0 training records and 0 ablations make no report; "
            "pass at least one Result, TrainingRecord or AblationRecord"
        )
    target = Path(path)
    if target.is_dir():
        raise ReportError(
            f"{target} is a folder and a report is one file; pass a file such as {target / 'report.html'}"
        )
    from acf.report.page import page_html
    from acf.sim.result import Result

    for each in results:
        require_kind(each, Result, "one of the results", "pass what acf.simulate returned")

    page = page_html(results, training, ablations, title, extra)
    write_whole(target, page.encode("utf-8", errors="replace"))
    return target


class _CallablePackage(ModuleType):
    """A package that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Path:
        """Call `report`."""
        return report(*args, **kwargs)


__wrapped__ = report  # `inspect.signature(acf.report)` is that of the function
sys.modules[__name__].__class__ = _CallablePackage
