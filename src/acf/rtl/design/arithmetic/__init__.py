"""Floating point as the SCUs compute it: bfloat16 products, exact, added in float32, subnormals flushed to zero.

Rules, in `model` and in gates alike: operands and results below the least normal number become zero of the same sign;
sums round to the nearest, ties to even; Inf follows IEEE 754; every NaN that comes out is 0x7FC00000. The multiplier
makes NaN of 0 x Inf. A MAC unit does not ask it: a pair with a zero in it is skipped, so 0 x Inf adds nothing there.
"""
