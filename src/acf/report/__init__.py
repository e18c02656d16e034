"""Simulation results and training records as one HTML file that opens without a network."""

from acf.report.page import report

__all__ = ["report"]
