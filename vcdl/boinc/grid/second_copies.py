"""Send late workunits of one job to second hosts, and give up those that no further host may train.

A late workunit gets one more result, and an assignment that names the hosts which may have it. The first valid upload
becomes canonical (docs/decisions/037). BOINC sends a workunit to a host only once (`one_result_per_host_per_wu`), so a
workunit that every active host has had is given up. If the workunits are reserved for one account's hosts, only those
hosts are considered.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.host_care import banned_hosts, hosts_at_work
from vcdl.boinc.grid.workunit_rows import (
    HOST,
    IN_PROGRESS,
    INIT,
    INVALID,
    NOT_SENT,
    OVER,
    SUCCESS,
    assign,
    of_job,
    unassign,
)
from vcdl.job.schema import LATE_AFTER
from vcdl.loop.lateness import MEASURED, Lateness, Out, Turnarounds, faster_hosts

_EVERY_S = 5.0
"""Seconds between two checks: a host requests work about as often."""
_NOBODY_S = 30
"""Seconds after which a workunit that every active host has had is given up (docs/decisions/037)."""
_log = logging.getLogger("vcdl.loop.work_generator")


@dataclass
class _Workunit:
    """An open workunit with the facts about its results that matter here."""

    id: int
    name: str
    most: int
    results: int = 0
    unsent: int = 0
    come: int = 0
    """Number of uploads that await their check or passed it."""
    running: dict[int, int] = field(default_factory=dict)
    """Hosts that have the workunit, with the Unix time at which each got it."""
    hosts: set[int] = field(default_factory=set)
    waits_since_s: int = 0
    """Unix time at which the workunit's last unsent result was created, or a result came back."""

    def add(self, state: int, outcome: int, checked: int, host: int, sent_s: int, made_s: int, came_s: int) -> None:
        """Add one of the workunit's results."""
        self.results += 1
        if host:
            self.hosts.add(host)
        if state < IN_PROGRESS:
            self.unsent += 1
            # Count from the newest result, since BOINC creates another result after each failure.
            self.waits_since_s = max(self.waits_since_s, made_s)
        elif state == IN_PROGRESS:
            self.running[host] = sent_s
        elif outcome == SUCCESS and checked != INVALID:
            self.come += 1
        else:
            self.waits_since_s = max(self.waits_since_s, came_s)

    @property
    def waits_for_hosts(self) -> bool:
        """Whether all its unfinished results run on hosts, and BOINC may create another result for one more host."""
        return bool(self.running) and not self.unsent and not self.come and self.results < self.most


class SecondCopies:
    """Gives the late workunits of one job to second hosts.

    All calls may raise GridUnavailable or GridError. The state is in BOINC's tables, so a restart loses nothing.
    """

    def __init__(
        self, database: BoincDatabase, job: str, account: int | None = None, late_after: float = LATE_AFTER
    ) -> None:
        """Prepare the second copies of a job.

        Args:
            database: BOINC's database.
            job: The job's name.
            account: The only account whose hosts may have the workunits; None: all hosts.
            late_after: Multiple of the usual turnaround, as in Lateness.
        """
        self._database = database
        self._job = job
        self._account = account
        self._late_after = late_after
        self._looked_s = -math.inf
        self.lateness: Lateness | None = None
        """The usual turnarounds of this job; None until there are enough of them."""

    def replicate_late(self, *, queue_empty: bool) -> None:
        """Offer late workunits to further hosts, and give up those that every active host has already had.

        Does nothing if the last call was less than _EVERY_S ago.
        """
        if time.monotonic() < self._looked_s + _EVERY_S:
            return
        self._looked_s = time.monotonic()
        now = int(time.time())
        turnarounds = self._turnarounds()
        self.lateness = turnarounds.lateness
        # Withdraw before the workunits are read: a followed assignment still has target_nresults 2, and BOINC would
        # replace the late host's result at its deadline.
        self._withdraw()
        workunits = self._open()
        # Most rounds end here and save the two queries about hosts.
        if not workunits:
            return
        at_work = hosts_at_work(self._database, self._account)
        # Do this before the check for late workunits, which needs turnarounds that a new job lacks: a workunit that no
        # host may have is stuck from the first minute.
        self._give_up(workunits, at_work, now)
        if self.lateness is not None:
            usual_s = turnarounds.usual_s(map(str, at_work))
            self._ask(workunits, usual_s, self.lateness, now, queue_empty=queue_empty)

    def clear(self) -> None:
        """Withdraw all assignments to further hosts: the job has ended or pauses."""
        unassign(self._database, self._job, HOST)

    # -- reading

    def _turnarounds(self) -> Turnarounds:
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT r.hostid, r.received_time - r.sent_time FROM result r JOIN workunit w ON w.id = r.workunitid"
            f" WHERE r.appid = %s AND r.server_state = %s AND r.outcome = %s AND {match} ORDER BY r.id DESC LIMIT %s",
            self._database.app_id, OVER, SUCCESS, *arguments, MEASURED,
        )  # fmt: skip
        # Pass the oldest first: the newest ones weigh most for a host's usual time.
        return Turnarounds(self._late_after, ((str(host), float(took_s)) for host, took_s in reversed(rows)))

    def _open(self) -> list[_Workunit]:
        """Return the workunits that some host has or had and that wait for an upload."""
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT w.id, w.name, w.max_total_results, r.server_state, r.outcome,"
            " r.validate_state, r.hostid, r.sent_time, r.create_time, r.received_time"
            " FROM workunit w JOIN result r ON r.workunitid = w.id"
            " WHERE w.appid = %s AND w.assimilate_state = %s AND w.error_mask = 0 AND w.canonical_resultid = 0"
            f" AND {match}",
            self._database.app_id, INIT, *arguments,
        )  # fmt: skip
        found: dict[int, _Workunit] = {}
        for number, name, most, *result in rows:
            found.setdefault(number, _Workunit(number, name, most)).add(*map(int, result))
        # Leave out workunits that no host has had: they wait for the scheduler, not for a second host.
        return [workunit for workunit in found.values() if workunit.hosts]

    # -- changing

    def _ask(
        self,
        workunits: Sequence[_Workunit],
        usual_s: Mapping[str, float | None],
        lateness: Lateness,
        now: int,
        *,
        queue_empty: bool,
    ) -> None:
        asked, banned = self._assigned_workunits(), banned_hosts(self._database)
        # Make one assignment per workunit: another would let a third host train it.
        waiting = {one.name: one for one in workunits if one.waits_for_hosts and one.id not in asked}
        out = [
            Out(
                name,
                # A banned host cannot report its task, so the task is late immediately.
                math.inf if one.running.keys() <= banned else now - max(one.running.values()),
                frozenset(map(str, one.hosts)),
            )
            for name, one in waiting.items()
        ]
        for late in lateness.late(out, queue_empty=queue_empty):
            chosen = faster_hosts(late, usual_s)
            if chosen:
                self._assign(waiting[late.workunit], list(map(int, chosen)))
                age = "its host is banned" if math.isinf(late.age_s) else f"out for {late.age_s:.0f} s"
                _log.info("%s: %s; a second host is asked (%s)", late.workunit, age, ", ".join(chosen[:8]))

    def _assigned_workunits(self) -> set[int]:
        rows = self._database.execute("SELECT workunitid FROM assignment WHERE target_type = %s", HOST)
        return {int(row[0]) for row in rows}

    def _assign(self, workunit: _Workunit, hosts: Sequence[int]) -> None:
        """Offer the workunit to these hosts as well; the first that requests work gets it.

        Without the assignment, BOINC's transitioner would offer it to any host.
        """
        # Change both in one transaction: with target_nresults alone the transitioner would create a result for any
        # host, and the scheduler refuses an assignment alone, because enough results exist.
        with self._database.transaction():
            self._database.execute(
                "UPDATE workunit SET target_nresults = %s"
                " WHERE id = %s AND assimilate_state = %s AND canonical_resultid = 0",
                len(workunit.running) + 1, workunit.id, INIT,
            )  # fmt: skip
            assign(self._database, HOST, [(workunit.id, host) for host in hosts])

    def _withdraw(self) -> None:
        """Delete assignments that a host has followed, or whose workunit is finished.

        Those workunits need only one result again.
        """
        match, arguments = of_job(self._job)
        rows = self._database.execute(
            "SELECT DISTINCT w.id FROM workunit w JOIN assignment a ON a.workunitid = w.id"
            f" WHERE a.target_type = %s AND w.appid = %s AND {match}"
            " AND (w.assimilate_state <> %s OR w.error_mask <> 0 OR w.canonical_resultid <> 0 OR EXISTS"
            " (SELECT 1 FROM result r WHERE r.workunitid = w.id AND r.create_time >= a.create_time))",
            HOST, self._database.app_id, *arguments, INIT,
        )  # fmt: skip
        if not rows:
            return
        ids = tuple(int(row[0]) for row in rows)
        with self._database.transaction():
            self._database.execute("DELETE FROM assignment WHERE target_type = %s AND workunitid IN %s", HOST, ids)
            self._database.execute(
                "UPDATE workunit SET target_nresults = 1"
                " WHERE id IN %s AND assimilate_state = %s AND canonical_resultid = 0",
                ids, INIT,
            )  # fmt: skip

    def _give_up(self, workunits: Sequence[_Workunit], at_work: Set[int], now: int) -> None:
        """Give up workunits that every active host has already had, so that their subtasks are reissued."""
        stuck = [
            one
            for one in workunits
            if not one.running and not one.come and now - one.waits_since_s > _NOBODY_S
            # Not while no host is at work at all: after an outage all of them would be given up before the first asks.
            and at_work and at_work <= one.hosts
        ]  # fmt: skip
        for one in stuck:
            _log.info("%s: every host at work has had it; it is given up", one.name)
            self._database.execute(
                "UPDATE workunit SET error_mask = error_mask | %s, transition_time = %s"
                " WHERE id = %s AND assimilate_state = %s AND canonical_resultid = 0",
                NOT_SENT, now, one.id, INIT,
            )  # fmt: skip
