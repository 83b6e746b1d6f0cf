"""Numbers in sentences."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 episode`, `1,277 episodes`: the noun's plural takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time that people compare: `40 seconds` below two minutes, `81 minutes` below ten hours, `11.5 hours`."""
    if seconds < 119.5:
        return counted(round(seconds), "second")
    if seconds < 600 * 60:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:.1f} hours"


def amount(value: float, thousands: str = "") -> str:
    """A return or length as text: two digits after the point below 100, none from there on.

    Args:
        thousands: "," groups digits.
    """
    return fixed(value, 0 if abs(value) >= 100 else 2, thousands)


def fixed(value: float, digits: int, thousands: str = "") -> str:
    """`value` with so many digits after the point; what rounds to zero has no minus: `0.00`, never `-0.00`."""
    return f"{round(value, digits) + 0.0:{thousands}.{digits}f}"
