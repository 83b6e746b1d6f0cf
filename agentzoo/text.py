"""Numbers as text."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A count with its noun, `1 episode` or `1,277 episodes`; the plural adds an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A rounded duration: `40 seconds` below two minutes, `81 minutes` below ten hours, `11.5 hours` above."""
    if seconds < 119.5:
        return counted(round(seconds), "second")
    if seconds < 600 * 60:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:.1f} hours"


def amount(value: float, thousands: str = "") -> str:
    """A return or length as text: two decimals below 100, none from 100 on; `thousands` "," groups the digits."""
    return fixed(value, 0 if abs(value) >= 100 else 2, thousands)


def amounts(ends: tuple[float, float], thousands: str = "") -> str:
    """A range of returns as text: `450 to 3600`, or one number if both ends are written alike."""
    first, last = (amount(end, thousands) for end in ends)
    return first if first == last else f"{first} to {last}"


def fixed(value: float, digits: int, thousands: str = "") -> str:
    """`value` with this many decimals; zero has no minus sign: `0.00`, never `-0.00`."""
    return f"{round(value, digits) + 0.0:{thousands}.{digits}f}"
