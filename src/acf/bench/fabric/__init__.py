"""Whole training steps on the simulated fabric, against other machines and with its parts varied (ablations)."""
