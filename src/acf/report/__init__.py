"""Simulation results and training records as one HTML file that opens without a network.

Importing a subpackage binds it in its parent, so ``acf.report`` names this package once it is imported. The package is
therefore callable and acts as the public function.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from acf.report.page import report

__all__ = ["report"]
__wrapped__ = report  # `inspect.signature(acf.report)` is that of the function


class _CallablePackage(ModuleType):
    """A package that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Path:
        """Call `acf.report.page.report`."""
        return report(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
