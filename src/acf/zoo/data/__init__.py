"""Readers of real data sets, each from its usual public layout."""
