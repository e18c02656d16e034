"""DRAM: timing and energy of every burst, and what long streams sustain."""
