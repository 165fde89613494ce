"""The clock of a journal: Unix time that never jumps or goes back, the same in every process of a run.

Wall clocks are set by hand, by NTP, or by a virtual machine that resumes. So a journal records once for each boot of
its machine at which Unix time the machine's monotonic clock was zero. Every process adds the monotonic clock to that
time. On Linux the monotonic clock stands still while the machine sleeps: sleep is no running time.
"""

import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MADE_S = time.time() - time.monotonic()
"""Unix time at which the monotonic clock was zero, measured when this process started, so that setting the clock later
has no effect."""

# Each boot has its own row: the monotonic clock restarts with each boot.
TABLE = "CREATE TABLE IF NOT EXISTS clocks (boot TEXT PRIMARY KEY, zero_s REAL NOT NULL);"
_FIND = "SELECT zero_s FROM clocks WHERE boot = ?"
_OTHERS = "SELECT 1 FROM clocks WHERE boot != ? LIMIT 1"
_KEEP = "INSERT INTO clocks (boot, zero_s) VALUES (?, ?) ON CONFLICT (boot) DO NOTHING"
_LAST = "SELECT time_s FROM events ORDER BY id DESC LIMIT 1"
_HAS_TABLES = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name IN ('clocks', 'events')"


@dataclass(frozen=True)
class SteadyClock:
    """Unix time that is counted by the machine's monotonic clock, so that it never jumps or goes back."""

    zero_s: float = field(default_factory=lambda: _MADE_S)
    """Unix time at which the monotonic clock was zero. By default it is measured when this process starts."""

    def now_s(self) -> float:
        """Return the Unix time now. Wall-clock changes since `zero_s` was measured have no effect."""
        return self.zero_s + time.monotonic()


def load_or_create_clock(connection: sqlite3.Connection) -> SteadyClock:
    """Return the journal's clock for the present boot of this machine.

    The first process of a boot stores the clock in the journal, and all others use the stored one.

    Raises:
        sqlite3.Error: The journal cannot be written.
    """
    # The first process of a boot fixes the zero for all others. `DO NOTHING` keeps it, so that their times agree
    # although the wall clock may have been set between two starts.
    with connection:
        connection.execute(_KEEP, (_boot(), _new(connection).zero_s))
    return _find_clock(connection) or SteadyClock()


def seen_clock(connection: sqlite3.Connection) -> SteadyClock:
    """Return the clock of a journal that is opened read-only: the stored one of this boot, otherwise a new one.

    The new one is not stored, so two readers may differ.

    Raises:
        sqlite3.Error: The journal cannot be read.
    """
    (tables,) = connection.execute(_HAS_TABLES).fetchone()
    # Without both tables, no event was written yet, or only by a version of vcdl without clocks.
    if tables < 2:
        return SteadyClock()
    return _find_clock(connection) or _new(connection)


def detect_reboot(connection: sqlite3.Connection) -> str:
    """Return this boot's id if the machine rebooted since the journal was first written, otherwise "".

    Stores this boot's clock in the journal, which must be writable.

    Raises:
        sqlite3.Error: The journal cannot be read.
    """
    load_or_create_clock(connection)
    return _boot() if connection.execute(_OTHERS, (_boot(),)).fetchone() else ""


def _find_clock(connection: sqlite3.Connection) -> SteadyClock | None:
    """Return the clock that is stored for this boot, or None."""
    row = connection.execute(_FIND, (_boot(),)).fetchone()
    return None if row is None else SteadyClock(row[0])


def _new(connection: sqlite3.Connection) -> SteadyClock:
    """Return a clock for a new boot. It starts after the last event, even if the wall clock was set back in between."""
    last = connection.execute(_LAST).fetchone()
    # Times in a journal must not go back, because sessions, turnarounds and active time are differences of them.
    return SteadyClock() if last is None else SteadyClock(max(_MADE_S, last[0] - time.monotonic()))


def _boot() -> str:
    """Return an id that is different after each boot of this machine; without Linux, of each process."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # not on Linux: use a clock for this process only
        return f"{_MADE_S:.0f}"
