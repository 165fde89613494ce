"""Hosts whose tasks fail one after the other get no work for a while, by BOINC's own daily quota; hosts can be banned.

BOINC takes one task off a host's quota for each failure, and doubles the quota with each success. Of 2000 tasks a day,
nobody notices the former; and it counts an upload that the check refuses as a success. So a host that rests has a quota
of 1, and has used that and all that it may become: with each task that a host reports, BOINC doubles the quota before
anybody has looked at the upload, and sends the next ones in the same answer. After its rest it gets one task; when that
succeeds, the host has used nothing, and BOINC itself doubles the quota with each success.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.rest import End, Ended, Rest, rest_after, spared
from vcdl.boinc.grid.results import host_name
from vcdl.boinc.grid.workunit_rows import CANCELLED, CLIENT_ERROR, INVALID, NO_REPLY, OVER, SUCCESS, VALIDATE_ERROR
from vcdl.errors import GridError

_EVERY_S = 15.0
_LOOKED_AT = 20_000
"""Results, the newest ones, among which failures are searched for."""
_ACTIVE_S = 900
_UNDECIDED = 0, 4
"""result.validate_state: not checked yet, or differing from another host's result, so that a third must decide."""
USED_UP = 1_000_000
"""host_app_version.n_jobs_today of a host that gets nothing: more than any quota, times the processors of any host."""
NOT_BEGUN_IN_TIME = 200
"""result.exit_status of tasks that a client gave up as it had not begun them by their deadline."""
NO_FAULT = (NOT_BEGUN_IN_TIME, 202, 203)
"""result.exit_status of those, and of tasks that the project took back, or a person on the client."""
BANNED = -1
"""host.max_results_day of a host that BOINC's scheduler turns away."""
_log = logging.getLogger("vcdl.hosts")


class HostCare:
    """Looks after the hosts of a project; all calls may raise GridUnavailable or GridError."""

    def __init__(self, database: BoincDatabase) -> None:
        self._database = database
        self._looked_s = -math.inf
        self._told: dict[int, Rest] = {}
        self._spares = False

    def look(self, refused: Callable[[], Collection[str]] = tuple) -> None:
        """Let hosts rest, and end their rests, each some seconds; `refused`: the workunits of rests_of."""
        if time.monotonic() < self._looked_s + _EVERY_S:
            return
        self._looked_s = time.monotonic()
        now_s = time.time()
        rests = rests_of(self._database, refused())
        rows = self._database.execute("SELECT id FROM host WHERE rpc_time > %s", int(now_s) - _ACTIVE_S)
        if spared(rests, {int(row[0]) for row in rows}, now_s):
            if not self._spares:
                _log.warning("most hosts fail: none of them rests, as the job or the server seems to be at fault")
            self._spares = True
            self._free(())
            return
        self._spares = False
        self._tell(rests, now_s)
        for host, rest in rests.items():
            if rest.is_on(now_s):
                self._stop(host)
            else:
                self._try_again(host, rest)
        self._free(rests)

    def _tell(self, rests: Mapping[int, Rest], now_s: float) -> None:
        for host, rest in rests.items():
            if rest.is_on(now_s) and self._told.get(host) != rest:
                until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rest.until_s))
                _log.warning("%s gets no work until %s, then a single task: %s", host_name(host), until, rest.why)
        for host in self._told.keys() - rests.keys():
            _log.info("%s has work again", host_name(host))
        self._told = dict(rests)

    def _stop(self, host: int) -> None:
        self._database.execute(
            "UPDATE host_app_version h JOIN app_version v ON v.id = h.app_version_id"
            " SET h.max_jobs_per_day = 1, h.n_jobs_today = %s"
            " WHERE v.appid = %s AND h.host_id = %s AND (h.max_jobs_per_day <> 1 OR h.n_jobs_today < %s)",
            USED_UP, self._database.app_id, host, USED_UP,
        )  # fmt: skip

    def _try_again(self, host: int, rest: Rest) -> None:
        """Give a host one task, and then nothing until that has come to an end."""
        had_one = self._database.execute(
            "SELECT 1 FROM result WHERE hostid = %s AND appid = %s AND sent_time >= %s LIMIT 1",
            host, self._database.app_id, int(rest.until_s),
        )  # fmt: skip
        if had_one:
            self._stop(host)
            return
        self._database.execute(
            "UPDATE host_app_version h JOIN app_version v ON v.id = h.app_version_id"
            " SET h.max_jobs_per_day = 1, h.n_jobs_today = 0"
            " WHERE v.appid = %s AND h.host_id = %s AND h.n_jobs_today > 0",
            self._database.app_id, host,
        )  # fmt: skip

    def _free(self, resting: Collection[int]) -> None:
        """Let all others have work again."""
        self._database.execute(
            "UPDATE host_app_version h JOIN app_version v ON v.id = h.app_version_id SET h.n_jobs_today = 0"
            " WHERE v.appid = %s AND h.n_jobs_today >= %s AND h.host_id NOT IN %s",
            self._database.app_id, USED_UP, tuple(resting) or (0,),
        )  # fmt: skip


def rests_of(database: BoincDatabase, refused: Collection[str] = ()) -> dict[int, Rest]:
    """The hosts whose last tasks failed, with their rests, some of which are over. Raises GridError.

    `refused`: workunits whose upload passed vcdl_validate, and was refused when it was to be folded in. Tasks of
    cancelled workunits say nothing: their uploads may have been deleted before they were looked at.
    """
    newest = database.execute("SELECT COALESCE(MAX(id), 0) FROM result")
    since = int(newest[0][0]) - _LOOKED_AT
    failing = database.execute(
        "SELECT DISTINCT hostid FROM result WHERE appid = %s AND server_state = %s AND id > %s"
        " AND (outcome IN %s OR validate_state = %s)",
        database.app_id, OVER, since, (CLIENT_ERROR, NO_REPLY, VALIDATE_ERROR), INVALID,
    )  # fmt: skip
    hosts = {int(row[0]) for row in failing}
    if refused:
        rows = database.execute(
            "SELECT DISTINCT r.hostid FROM result r JOIN workunit w ON w.id = r.workunitid"
            " WHERE w.name IN %s AND r.id = w.canonical_resultid",
            tuple(refused),
        )
        hosts |= {int(row[0]) for row in rows}
    if not hosts:
        return {}
    rows = database.execute(
        "SELECT r.hostid, r.outcome, r.exit_status, r.validate_state, r.received_time, r.report_deadline, w.name"
        " FROM result r JOIN workunit w ON w.id = r.workunitid"
        " WHERE r.hostid IN %s AND r.appid = %s AND r.server_state = %s AND r.id > %s AND w.error_mask & %s = 0",
        tuple(hosts), database.app_id, OVER, since, CANCELLED,
    )  # fmt: skip
    ended: dict[int, list[Ended]] = defaultdict(list)
    for host, outcome, status, checked, received_s, deadline_s, name in rows:
        end = _end(outcome, status, checked, in_time=received_s < deadline_s)
        if end is End.GOOD and name in refused:
            end = End.REFUSED
        if end is not None:
            ended[host].append(Ended(received_s or deadline_s, end))
    return {host: rest for host, tasks in ended.items() if (rest := rest_after(tasks)) is not None}


def ban(database: BoincDatabase, hosts: Collection[int], *, banned: bool = True) -> None:
    """Have BOINC's scheduler turn hosts away, whatever they ask for, or let them in again. Raises GridError."""
    known = {int(row[0]) for row in database.execute("SELECT id FROM host WHERE id IN %s", tuple(hosts))}
    if missing := sorted(set(hosts) - known):
        raise GridError(f"the project has no host {', '.join(map(str, missing))}: `vcdl hosts` lists them")
    database.execute("UPDATE host SET max_results_day = %s WHERE id IN %s", BANNED if banned else 0, tuple(hosts))


def _end(outcome: int, status: int, checked: int, *, in_time: bool) -> End | None:
    """What became of a task; None: that says nothing of its host."""
    if outcome == VALIDATE_ERROR or (checked == INVALID and outcome == SUCCESS):
        return End.REFUSED
    if outcome == SUCCESS:
        return None if checked in _UNDECIDED else End.GOOD
    if outcome == CLIENT_ERROR:
        if status == NOT_BEGUN_IN_TIME and in_time:
            return End.CLOCK
        return None if status in NO_FAULT else End.ERROR
    return End.TIMEOUT if outcome == NO_REPLY else None
