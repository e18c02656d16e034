"""Formal proofs: properties as components with an output ``holds``, and the SAT solver that proves it is always 1."""
