"""Fixed-point logarithms: daemon/remedy/ticks.h, bit for bit. A tick is 2^-20 nat. Integers alone, since libm differs
between machines, and replicas may not.
"""

import math

TICKS_PER_NAT = 1 << 20
_LN2 = 0xB17217F7D1CF79AC  # ln(2) * 2^64, rounded.
_LOG_DIGITS = 44
_EXP_TERMS = 20


def ln(x):
    """round(ln(x) * 2^20) of a finite x > 0; 0 of any other."""
    if not (x > 0 and math.isfinite(x)):
        return 0
    fraction, exponent = math.frexp(x)  # [1/2, 1): exact.
    m = int(fraction * 2.0**53) << 11  # The mantissa in [1, 2), times 2^63.
    exponent -= 1
    digits = 0
    for _ in range(_LOG_DIGITS):  # Squaring doubles the logarithm: each time it passes 1, the next digit is one.
        square = m * m >> 63
        one = square >> 64
        m = square >> 1 if one else square
        digits = digits << 1 | one
    log2 = (exponent << _LOG_DIGITS) + digits
    down = _LOG_DIGITS + 64 - 20
    return (log2 * _LN2 + (1 << (down - 1))) >> down


def exp_minus(ticks):
    """exp(-ticks / 2^20), in [0, 1]; negative ticks count as 0."""
    if ticks <= 0:
        return 1.0
    if ticks > 746 * TICKS_PER_NAT:
        return 0.0
    octaves, rest = divmod(ticks << 44, _LN2)
    one = 1 << 63
    value = one
    for n in range(_EXP_TERMS, 0, -1):
        value = one - (rest * value >> 64) // n
    return _assemble(value, -octaves)


def _assemble(mantissa, exponent):
    """mantissa * 2^(exponent - 63), rounded to nearest as ticks.cc does: halves away from 0, subnormals too."""
    top = mantissa.bit_length() - 1
    exponent += top - 63
    shift = top - 52 + max(0, -1022 - exponent)
    if shift > 63:
        return 0.0
    return math.ldexp(((mantissa >> (shift - 1)) + 1) >> 1, exponent - top + shift)
