"""Read and change the workunits of one job in BOINC's tables; their names begin with the job's name."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import GPU_CLASS
from vcdl.boinc.grid.supply import Stock

_T = TypeVar("_T")
Arrived = Callable[[bytes | str], bool]
"""Returns whether the upload of a result with this xml_doc_in has arrived."""

INIT, READY, DONE = 0, 1, 2
"""workunit.assimilate_state"""
UNSENT, IN_PROGRESS, OVER = 2, 4, 5
"""result.server_state"""
SUCCESS, COULDNT_SEND, CLIENT_ERROR, NO_REPLY, DIDNT_NEED, VALIDATE_ERROR = range(1, 7)
"""result.outcome"""
NOT_SENT, CANCELLED = 1, 16
"""workunit.error_mask"""
_NOT_VALIDATED, VALID, INVALID = 0, 1, 2
"""result.validate_state"""
HOST, USER = 1, 2
"""assignment.target_type"""
_UNCHECKED_S = 60
"""Seconds after which an upload that could not be read is checked again, instead of BOINC's six hours."""
_AT_ONCE = 1000
"""Names or ids per statement, so that it stays far below MariaDB's limit for a packet."""


def of_job(job: str) -> tuple[str, tuple[str, str]]:
    """Return an SQL condition that selects a job's workunits from `workunit w`, and the condition's arguments."""
    # Escape `_`, a wildcard of LIKE. For a job `a` the prefix also matches workunits of a job `a_e1`, so the regular
    # expression decides; alone, it would read the whole table.
    prefix = job.replace("_", "|_") + "|_e%"
    return ("(w.name LIKE %s ESCAPE '|' AND w.name RLIKE %s)", (prefix, f"^{job}_e[0-9]+_s[0-9]+_a[0-9]+_v[0-9]+$"))


def was_submitted(database: BoincDatabase, job: str) -> bool:
    """Return whether workunits of a job of that name ever existed: names are never reused.

    Raises:
        GridError: The database cannot be read.
    """
    pattern = job.replace("\\", r"\\").replace("_", r"\_").replace("%", r"\%") + r"\_e%\_s%\_a%\_v%"
    rows = database.execute(
        "SELECT 1 FROM workunit WHERE appid = %s AND name LIKE %s LIMIT 1", database.app_id, pattern
    )
    return bool(rows)


def assign(database: BoincDatabase, kind: int, pairs: Collection[tuple[int, int]]) -> None:
    """Assign workunits to hosts or accounts.

    Args:
        database: BOINC's database.
        kind: HOST or USER.
        pairs: Pairs of a workunit's id, and a host's or an account's.

    Raises:
        GridError: The database cannot be used.
    """
    database.insert(
        "INSERT INTO assignment (create_time, target_id, target_type, multi, workunitid, resultid)"
        " VALUES (%s, %s, %s, 0, %s, 0)",
        [(int(time.time()), target, kind, workunit) for workunit, target in pairs],
    )


def unassign(database: BoincDatabase, job: str, kind: int, condition: str = "", *values: int) -> None:
    """Delete the job's assignments of one kind.

    Args:
        database: BOINC's database.
        job: The job's name.
        kind: HOST or USER.
        condition: SQL that begins with AND and limits the workunits (`workunit w`); empty: all of them.
        values: The condition's arguments.

    Raises:
        GridError: The database cannot be used.
    """
    match, arguments = of_job(job)
    rows = database.execute(
        "SELECT a.id FROM assignment a JOIN workunit w ON w.id = a.workunitid"
        f" WHERE a.target_type = %s AND w.appid = %s AND {match} {condition}",
        kind, database.app_id, *arguments, *values,
    )  # fmt: skip
    if rows:
        database.execute("DELETE FROM assignment WHERE id IN %s", tuple(int(row[0]) for row in rows))


class WorkunitRows:
    """Reads and changes the workunits of one job; all calls may raise GridUnavailable or GridError."""

    def __init__(self, database: BoincDatabase, job: str) -> None:
        self._database = database
        self._job = job

    def existing(self, names: Collection[str]) -> set[str]:
        """Return the names that have rows, in any state."""
        return {
            row[0]
            for some in _chunks(names)
            for row in self._database.execute("SELECT name FROM workunit WHERE name IN %s", some)
        }

    def is_open(self, name: str) -> bool:
        rows = self._database.execute("SELECT 1 FROM workunit WHERE name = %s AND assimilate_state <> %s", name, DONE)
        return bool(rows)

    def hand_out_again(self, names: Collection[str]) -> None:
        """Mark concluded workunits as ready to be assimilated, so that they are claimed once more."""
        for some in _chunks(names):
            self._database.execute(
                "UPDATE workunit SET assimilate_state = %s WHERE name IN %s AND assimilate_state = %s",
                READY, some, DONE,
            )  # fmt: skip

    def unfinished_names(self) -> list[str]:
        """Return the names of the workunits that a client may still train."""
        return [name for _, name in self._unfinished_rows()]

    def stock(self) -> Stock:
        """Count the unsent workunits, and those that run or wait to be assimilated.

        A workunit without results yet is unsent. Of the running ones, those on a GPU are counted by the plan class of
        their app version.
        """
        match, arguments = of_job(self._job)
        # Count a workunit whose only result failed as unsent: the transitioner creates another one, which is sent
        # before new work is needed.
        rows = self._database.execute(
            "SELECT COUNT(*), COALESCE(SUM(w.assimilate_state = %s AND w.error_mask = 0 AND NOT EXISTS"
            " (SELECT 1 FROM result r WHERE r.workunitid = w.id AND (r.server_state = %s OR r.outcome = %s))), 0),"
            " COALESCE(SUM(EXISTS (SELECT 1 FROM result r JOIN app_version v ON v.id = r.app_version_id"
            " WHERE r.workunitid = w.id AND r.server_state = %s AND v.plan_class = %s)), 0)"
            f" FROM workunit w WHERE w.appid = %s AND w.assimilate_state IN %s AND {match}",
            INIT, IN_PROGRESS, SUCCESS, IN_PROGRESS, GPU_CLASS, self._database.app_id, (INIT, READY), *arguments,
        )  # fmt: skip
        total, unsent, on_gpus = (int(value) for value in rows[0])
        return Stock(unsent, total - unsent, on_gpus)

    def cancel(self, names: Collection[str], arrived: Arrived) -> None:
        """Cancel those of the workunits that have not ended, as BOINC's cancel_jobs does.

        Running tasks abort when their host next contacts the scheduler. A workunit whose upload has arrived is kept.

        Args:
            names: The workunits.
            arrived: Returns whether an upload has arrived.
        """
        for some in _chunks(names):
            # Take INIT only: a workunit that is READY has an upload, or an error that the assimilator will report.
            rows = self._database.execute(
                "SELECT id FROM workunit WHERE name IN %s AND assimilate_state = %s", some, INIT
            )
            self._cancel([row[0] for row in rows], arrived)

    def cancel_all(self, arrived: Arrived) -> None:
        ids = [number for number, _ in self._unfinished_rows()]
        for some in _chunks(ids):
            self._cancel(some, arrived)

    def hurry_ended(self) -> None:
        """Set transition_time of cancelled workunits to now if the transitioner has overwritten it.

        That happens if it processes a workunit at the moment in which we cancel it. It would come back to that workunit
        only after ten days.
        """
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT w.id FROM workunit w WHERE w.appid = %s AND w.assimilate_state = %s AND w.error_mask <> 0"
            f" AND w.transition_time > %s AND {match}",
            self._database.app_id, INIT, int(time.time()), *arguments,
        )  # fmt: skip
        for some in _chunks([row[0] for row in rows]):
            self._database.execute("UPDATE workunit SET transition_time = %s WHERE id IN %s", int(time.time()), some)

    def hurry_unchecked(self) -> None:
        """Have uploads that could not be read checked again soon; BOINC's validator would wait for six hours."""
        match, arguments = of_job(self._job)
        self._database.execute(
            "UPDATE workunit w SET w.transition_time = %s"
            " WHERE w.appid = %s AND w.assimilate_state = %s AND w.need_validate = 0 AND w.canonical_resultid = 0"
            f" AND w.transition_time > %s AND w.mod_time < NOW() - INTERVAL %s SECOND AND {match} AND EXISTS"
            " (SELECT 1 FROM result r WHERE r.workunitid = w.id AND r.outcome = %s AND r.validate_state = %s)",
            int(time.time()), self._database.app_id, INIT, int(time.time()), _UNCHECKED_S, *arguments,
            SUCCESS, _NOT_VALIDATED,
        )  # fmt: skip

    def _unfinished_rows(self) -> list[tuple[int, str]]:
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            f"SELECT w.id, w.name FROM workunit w WHERE w.appid = %s AND w.assimilate_state = %s AND {match}",
            self._database.app_id, INIT, *arguments,
        )  # fmt: skip
        return [(row[0], row[1]) for row in rows]

    def _cancel(self, ids: Sequence[int], arrived: Arrived) -> None:
        """Cancel results before their workunits, so that none is sent in between.

        Results that await validation still earn credit.
        """
        if not ids:
            return
        # Keep workunits whose upload has arrived, though not reported yet: BOINC deletes the uploads of a cancelled
        # workunit, and the host would earn nothing and look like one that failed.
        running = self._database.execute(
            "SELECT workunitid, xml_doc_in FROM result WHERE workunitid IN %s AND server_state = %s",
            tuple(ids), IN_PROGRESS,
        )  # fmt: skip
        here = tuple(int(workunit) for workunit, description in running if arrived(description)) or (0,)
        self._database.execute(
            "UPDATE result SET server_state = %s, outcome = %s WHERE workunitid IN %s AND server_state < %s",
            OVER, DIDNT_NEED, tuple(ids), IN_PROGRESS,
        )  # fmt: skip
        waits = (
            "(id IN %s OR EXISTS (SELECT 1 FROM result r WHERE r.workunitid = workunit.id AND r.server_state = %s"
            " AND r.outcome = %s AND r.validate_state = %s))"
        )
        waiting = here, OVER, SUCCESS, _NOT_VALIDATED
        self._database.execute(
            "UPDATE workunit SET error_mask = error_mask | %s, transition_time = %s"
            f" WHERE id IN %s AND assimilate_state = %s AND NOT {waits}",
            CANCELLED, int(time.time()), tuple(ids), INIT, *waiting,
        )  # fmt: skip
        # Let workunits with a waiting upload have no further result: if the check refuses the upload, they end with an
        # error instead of being sent again.
        self._database.execute(
            "UPDATE workunit SET max_total_results = (SELECT COUNT(*) FROM result WHERE workunitid = workunit.id)"
            f" WHERE id IN %s AND assimilate_state = %s AND error_mask = 0 AND {waits}",
            tuple(ids), INIT, *waiting,
        )  # fmt: skip


def _chunks(items: Collection[_T]) -> Iterator[tuple[_T, ...]]:
    rest = iter(items)
    while some := tuple(islice(rest, _AT_ONCE)):
        yield some
