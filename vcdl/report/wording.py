"""Format numbers, times and tables for users."""

import time
from collections.abc import Collection, Sequence


def duration(seconds: float) -> str:
    """Return a time as text: `45 s`, `2 min 05 s`, `3 h 20 min`."""
    # At least 0, because the clocks of two machines differ, which can make an age negative.
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock_time(time_s: float) -> str:
    """Return a Unix time as local time: the time of day if it is today, otherwise date and minute."""
    moment, today = time.localtime(time_s), time.localtime()
    is_today = moment[:3] == today[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M", moment)


def ago(time_s: float, now_s: float | None = None) -> str:
    """Return the time since a moment in words and whole minutes, so that an idle page changes only once a minute.

    Args:
        time_s: The moment, as Unix time.
        now_s: The current time, or None to read the clock.
    """
    minutes = max(0, int((time.time() if now_s is None else now_s) - time_s)) // 60
    return f"{duration(60 * minutes).removesuffix(' 00 s')} ago" if minutes else "less than a minute ago"


def size(size_bytes: float) -> str:
    """Return a size as text: `512 bytes`, `413.5 KiB`, `19.0 MiB`."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} bytes"
    for unit in ("KiB", "MiB"):
        size_bytes /= 1024
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} GiB"


def group_digits(number: float) -> str:
    """Return a whole number in groups of three: `4 972 746`."""
    return f"{number:,.0f}".replace(",", " ")


def plural(count: int, word: str) -> str:
    """Return a count with its noun: `1 epoch`, `2 epochs`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return the lines of a table, with columns two spaces apart.

    Args:
        rows: The rows, all of the same length.
        left: Numbers of the columns to align left; the last one is too, all others are aligned right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {*left, len(widths) - 1}
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
