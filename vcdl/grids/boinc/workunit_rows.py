"""The workunits of one job in BOINC's tables; a row belongs to the job whose name its own begins with."""

import time
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from vcdl.grids.boinc.database import BoincDatabase
from vcdl.grids.boinc.supply import Stock

_T = TypeVar("_T")

INIT, READY, DONE = 0, 1, 2
"""workunit.assimilate_state"""
IN_PROGRESS, OVER = 4, 5
"""result.server_state"""
SUCCESS, DIDNT_NEED = 1, 5
"""result.outcome"""
CANCELLED = 16
"""workunit.error_mask"""
_AT_ONCE = 1000
"""Names or ids in one statement."""


def of_job(job: str) -> tuple[str, tuple[str, str]]:
    """A condition on `workunit w` and its arguments: the first half finds rows by the index, the second tells `a` from `a_e`."""
    prefix = job.replace("_", "|_") + "|_e%"
    return (
        "(w.name LIKE %s ESCAPE '|' AND w.name RLIKE %s)",
        (prefix, f"^{job}_e[0-9]+_s[0-9]+_a[0-9]+_v[0-9]+$"),
    )


class WorkunitRows:
    """Reads and changes them; all calls may raise GridUnavailable or GridError."""

    def __init__(self, database: BoincDatabase, job: str) -> None:
        self._database = database
        self._job = job

    def existing(self, names: Collection[str]) -> set[str]:
        """Those of the names that there are rows of, whatever their state."""
        return {
            row[0]
            for some in _chunks(names)
            for row in self._database.execute("SELECT name FROM workunit WHERE name IN %s", some)
        }

    def is_open(self, name: str) -> bool:
        rows = self._database.execute("SELECT 1 FROM workunit WHERE name = %s AND assimilate_state <> %s", name, DONE)
        return bool(rows)

    def hand_out_again(self, names: Collection[str]) -> None:
        """Let those that were concluded be claimed once more."""
        for some in _chunks(names):
            self._database.execute(
                "UPDATE workunit SET assimilate_state = %s WHERE name IN %s AND assimilate_state = %s",
                READY, some, DONE,
            )  # fmt: skip

    def unfinished(self) -> list[str]:
        """Names of those that a client may still train."""
        return [name for _, name in self._unfinished()]

    def stock(self) -> Stock:
        """How many lie unsent (also those whose results BOINC has not made yet), and how many run or wait to be assimilated."""
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT COUNT(*), COALESCE(SUM(w.assimilate_state = %s AND w.error_mask = 0 AND NOT EXISTS"
            " (SELECT 1 FROM result r WHERE r.workunitid = w.id AND (r.server_state = %s OR r.outcome = %s))), 0)"
            f" FROM workunit w WHERE w.appid = %s AND w.assimilate_state IN %s AND {match}",
            INIT, IN_PROGRESS, SUCCESS, self._database.app_id, (INIT, READY), *arguments,
        )  # fmt: skip
        total, unsent = (int(value) for value in rows[0])
        return Stock(unsent, total - unsent)

    def cancel(self, names: Collection[str]) -> None:
        """As BOINC's own cancel_jobs: what is unsent is never sent, what runs is aborted when its client next reports."""
        for some in _chunks(names):
            rows = self._database.execute(
                "SELECT id FROM workunit WHERE name IN %s AND assimilate_state = %s", some, INIT
            )
            self._cancel([row[0] for row in rows])

    def cancel_all(self) -> None:
        ids = [number for number, _ in self._unfinished()]
        for some in _chunks(ids):
            self._cancel(some)

    def hurry_cancelled(self) -> None:
        """Have the transitioner look at cancelled workunits once more that it was working on at the moment of the cancellation.

        It then wrote its own transition_time over ours, and would come back to them after ten days.
        """
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT w.id FROM workunit w WHERE w.appid = %s AND w.assimilate_state = %s AND w.error_mask & %s"
            f" AND w.transition_time > %s AND {match}",
            self._database.app_id, INIT, CANCELLED, int(time.time()), *arguments,
        )  # fmt: skip
        for some in _chunks([row[0] for row in rows]):
            self._database.execute("UPDATE workunit SET transition_time = %s WHERE id IN %s", int(time.time()), some)

    def _unfinished(self) -> list[tuple[int, str]]:
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            f"SELECT w.id, w.name FROM workunit w WHERE w.appid = %s AND w.assimilate_state = %s AND {match}",
            self._database.app_id, INIT, *arguments,
        )  # fmt: skip
        return [(row[0], row[1]) for row in rows]

    def _cancel(self, ids: Sequence[int]) -> None:
        """Results first: a workunit marked before them could be sent in between."""
        if not ids:
            return
        self._database.execute(
            "UPDATE result SET server_state = %s, outcome = %s WHERE workunitid IN %s AND server_state < %s",
            OVER, DIDNT_NEED, tuple(ids), IN_PROGRESS,
        )  # fmt: skip
        self._database.execute(
            "UPDATE workunit SET error_mask = error_mask | %s, transition_time = %s WHERE id IN %s AND assimilate_state = %s",
            CANCELLED, int(time.time()), tuple(ids), INIT,
        )  # fmt: skip


def _chunks(items: Collection[_T]) -> Iterator[tuple[_T, ...]]:
    rest = iter(items)
    while some := tuple(islice(rest, _AT_ONCE)):
        yield some
