"""Whole runs from data to figures."""
