"""Here lives how numbers and names are written: for people, and safe in a chart or a terminal."""

from __future__ import annotations

import math
import re
from typing import Final

from normula.race.words import capital as capital
from normula.race.words import count as count
from normula.race.words import init_words as init_words
from normula.race.words import listed as listed

SYMBOLS: Final = {"learned": "✓", "stuck": "○", "diverged": "✕", "dropped": "‖", "failed": "!"}
"""An outcome's sign, so that nothing hangs on its colour."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""What neither XML nor a terminal may be sent."""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 3) -> str:
    """To so many significant digits; as a power of ten where it is very large or small.

    >>> number(0.93456), number(35.7888), number(2.5e-10), number(float("nan"))
    ('0.935', '35.8', '2.50×10⁻¹⁰', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    if -4 < int(power) < 5:
        return f"{value:.{max(0, digits - 1 - int(power))}f}".replace("-", "−")
    return f"{mantissa.replace('-', '−')}×{power_of_ten(int(power))}"


def tick(value: float) -> str:
    """As short as an axis needs it."""
    if value != 0 and not 1e-4 < abs(value) < 1e5:
        mantissa, power = f"{value:.0e}".split("e")
        sign = "−" if value < 0 else ""
        mantissa = mantissa.lstrip("-")
        return f"{sign}{'' if mantissa == '1' else mantissa + '×'}{power_of_ten(int(power))}"
    return f"{value:.6g}".replace("-", "−")


def power_of_ten(power: int) -> str:
    """Ten raised, in characters."""
    return f"10{str(power).translate(_RAISED)}"


def nats(value: float) -> str:
    """A loss; two digits after the point, as neighbouring seeds differ in the second."""
    if not math.isfinite(value):
        return "not finite"
    return f"{value:.2f}" if abs(value) < 1e4 else number(value)


def plain(text: str) -> str:
    """A text without characters that steer what shows it."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
