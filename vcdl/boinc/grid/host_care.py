"""Suspend hosts whose tasks keep failing, through BOINC's daily quota, and ban hosts.

BOINC's quota alone does not stop a failing host. It falls by one task with each failure, which changes nothing when
2000 tasks a day are allowed, and it doubles with each success, even if our check refuses that upload.

So a suspended host gets a quota (max_jobs_per_day) of 1 and a number of tasks used today (n_jobs_today) that no quota
can reach. The second is needed because BOINC doubles the quota as soon as a host reports a task, before the upload was
checked, and sends the next tasks in the same reply.

After its suspension a host gets a single task: a quota of 1 and no task used today. If that task succeeds, the
suspension is deleted, and BOINC doubles the quota with each further success.

BOINC stores quotas per host and app version. So a suspended host gets a row for every offered version, including those
that it never ran. The suspensions are stored in PROJECT/vcdl/hosts.json.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from vcdl.boinc.grid.boinc_key import BoincKey
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject, add_advice
from vcdl.boinc.grid.results import TRANSFER_FAILED, host_name
from vcdl.boinc.grid.suspension import SAME_MINUTE_S, End, Ended, Suspension, Suspensions
from vcdl.boinc.grid.workunit_rows import CANCELLED, CLIENT_ERROR, INVALID, NO_REPLY, OVER, SUCCESS, VALIDATE_ERROR
from vcdl.errors import GridError
from vcdl.files.atomic import atomic_write

_EVERY_S = 15.0
"""Seconds between two checks of the hosts: short enough that a failing host cannot do much in between."""
_LOOKED_AT = 20_000
"""Number of newest results that are searched for failures, so that the query stays fast in a table of millions."""
_THERE_S = 180
"""Seconds since its last request for which a host counts as online. Hosts ask twice a minute, so a few requests may be
lost."""
_ACTIVE_S = 900
"""Seconds without a request after which a host counts as gone, so that no work is kept or held back for it."""
_UNDECIDED = 0, 4
"""result.validate_state: not checked yet, or differing from another host's result, so that a third must decide."""
USED_UP = 1_000_000
"""host_app_version.n_jobs_today of a host that gets nothing: more than any quota, times the processors of any host."""
NOT_BEGUN_IN_TIME = 200
"""result.exit_status of tasks that a client gave up because it had not started them by their deadline."""
NO_FAULT = (NOT_BEGUN_IN_TIME, 202, 203)
"""result.exit_status of tasks that ended through no fault of the host: too late, or aborted by project or user."""
BANNED = -1
"""host.max_results_day of a host that BOINC's scheduler turns away."""
NEW_ROW = (
    *("pfc_n", "pfc_avg", "et_n", "et_avg", "et_var", "et_q", "turnaround_n", "turnaround_avg", "turnaround_var"),
    *("turnaround_q", "consecutive_valid"),
)
"""Columns of host_app_version that are 0 in a new row."""
_log = logging.getLogger("vcdl.hosts")


class HostCare:
    """Suspends failing hosts of a project, and readmits them after a trial task.

    All calls may raise GridUnavailable or GridError.
    """

    def __init__(self, project: BoincProject, database: BoincDatabase) -> None:
        self._project = project
        self._database = database
        self._looked_s = -math.inf

    def suspend_failing(self, quarantined: Callable[[], Mapping[int, str]] = dict) -> None:
        """Suspend failing hosts, end suspensions and restore quotas; does nothing if it ran less than _EVERY_S ago.

        Args:
            quarantined: Returns the hosts in the quarantine of a job: host's id → reason.
        """
        # Limit the frequency: it is called in each round, and the queries read thousands of rows.
        if time.monotonic() < self._looked_s + _EVERY_S:
            return
        self._looked_s = time.monotonic()
        now_s, before = time.time(), read_suspensions(self._project)
        # Leave out hosts that are offline: they must not count when the code decides whether most hosts fail.
        rows = self._database.execute("SELECT id FROM host WHERE rpc_time > %s", int(now_s) - _THERE_S)
        there = {int(row[0]) for row in rows}
        suspensions = before.after(ended_tasks(self._project, self._database, before.of), quarantined(), there, now_s)
        if suspensions != before:
            write_suspensions(
                self._project, suspensions
            )  # first: a suspension that is stored nowhere would end with this process
            _tell(before, suspensions, now_s)
        # Do this in every call: BOINC raises the quota with each reported success, and resets n_jobs_today each day.
        self.hold(suspensions, now_s)
        self._restore_quotas(suspensions.of)

    def hold(self, suspensions: Suspensions, now_s: float) -> None:
        """Set the quotas of suspended hosts: none while the suspension lasts, then one trial task."""
        for host, suspension in suspensions.of.items():
            # Stop a host again after its trial task; otherwise BOINC would send as many tasks as its cores ask for.
            if suspension.is_on(now_s) or self._had_trial_task(host, suspension):
                self._stop(host)
            else:
                self._try_again(host)

    def _stop(self, host: int) -> None:
        self._database.execute(
            "UPDATE host_app_version h JOIN app_version v ON v.id = h.app_version_id"
            " SET h.max_jobs_per_day = 1, h.n_jobs_today = %s"
            " WHERE v.appid = %s AND h.host_id = %s AND (h.max_jobs_per_day <> 1 OR h.n_jobs_today < %s)",
            USED_UP, self._database.app_id, host, USED_UP,
        )  # fmt: skip
        # Add missing rows, which BOINC creates when it first sends a version. Otherwise a suspended host would begin
        # with a full quota after an upgrade, or on a GPU version that it never had.
        self._database.execute(
            "INSERT INTO host_app_version"
            f" (host_id, app_version_id, max_jobs_per_day, n_jobs_today, {', '.join(NEW_ROW)})"
            f" SELECT %s, v.id, 1, %s{', 0' * len(NEW_ROW)} FROM app_version v WHERE v.appid = %s AND v.deprecated = 0"
            " AND NOT EXISTS (SELECT 1 FROM host_app_version h WHERE h.host_id = %s AND h.app_version_id = v.id)",
            host, USED_UP, self._database.app_id, host,
        )  # fmt: skip

    def _had_trial_task(self, host: int, suspension: Suspension) -> bool:
        """Return whether a host has been sent its trial task after its suspension."""
        rows = self._database.execute(
            "SELECT 1 FROM result WHERE hostid = %s AND appid = %s AND sent_time >= %s LIMIT 1",
            host, self._database.app_id, int(suspension.until_s),
        )  # fmt: skip
        return bool(rows)

    def _try_again(self, host: int) -> None:
        self._database.execute(
            "UPDATE host_app_version h JOIN app_version v ON v.id = h.app_version_id"
            " SET h.max_jobs_per_day = 1, h.n_jobs_today = 0"
            " WHERE v.appid = %s AND h.host_id = %s AND h.n_jobs_today > 0",
            self._database.app_id, host,
        )  # fmt: skip

    def _restore_quotas(self, suspended: Collection[int]) -> None:
        """Let all other hosts get work again."""
        self._database.execute(
            "UPDATE host_app_version h JOIN app_version v ON v.id = h.app_version_id SET h.n_jobs_today = 0"
            " WHERE v.appid = %s AND h.n_jobs_today >= %s AND h.host_id NOT IN %s",
            self._database.app_id, USED_UP, tuple(suspended) or (0,),
        )  # fmt: skip


def _tell(before: Suspensions, suspensions: Suspensions, now_s: float) -> None:
    if suspensions.forgiven_until_s > before.forgiven_until_s:
        _log.warning("most hosts fail, so none of them is suspended: the job or the server seems to be at fault")
    for host, suspension in suspensions.of.items():
        if suspension.is_on(now_s) and (host not in before.of or before.of[host].why != suspension.why):
            until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(suspension.until_s))
            _log.warning("%s gets no work until %s, then a single task: %s", host_name(host), until, suspension.why)
    for host in before.of.keys() - suspensions.of.keys():
        _log.info("%s has work again", host_name(host))


def suspensions_file(project: BoincProject) -> Path:
    return project.path / "vcdl" / "hosts.json"


def read_suspensions(project: BoincProject) -> Suspensions:
    """Read the stored suspensions; empty if there is no file.

    Raises:
        GridError: Their file cannot be read.
    """
    path = suspensions_file(project)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Suspensions)
    except FileNotFoundError:
        return Suspensions({})
    except (OSError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise GridError(f"{path} cannot be read ({what}): fix it, or remove it, which ends all suspensions") from error


def write_suspensions(project: BoincProject, suspensions: Suspensions) -> None:
    """Write the suspensions to PROJECT/vcdl/hosts.json, atomically.

    Raises:
        GridError: Their file cannot be written.
    """
    path = suspensions_file(project)
    with add_advice(path, "suspensions cannot be stored: check space and permissions"), atomic_write(path) as target:
        target.write_bytes(msgspec.json.format(msgspec.json.encode(suspensions), indent=1))


def ended_tasks(
    project: BoincProject, database: BoincDatabase, suspended: Collection[int] = ()
) -> Mapping[int, list[Ended]]:
    """Return the recent ended tasks of hosts that failed or are suspended, keyed by the host's id.

    Tasks of other hosts around the time of failed transfers are added, to show whether the server was at fault.

    Args:
        project: The BOINC project.
        database: Its database.
        suspended: Suspended hosts, whose tasks are returned even if none failed.

    Raises:
        GridError: The database cannot be read.
    """
    # Select by id and not by time, because the primary key finds the rows quickly in a table of millions.
    newest = database.execute("SELECT COALESCE(MAX(id), 0) FROM result")
    since = int(newest[0][0]) - _LOOKED_AT
    failing = database.execute(
        "SELECT hostid, COALESCE(MIN(IF(exit_status IN %s, received_time, NULL)), 0),"
        " COALESCE(MAX(IF(exit_status IN %s, received_time, NULL)), 0)"
        " FROM result WHERE appid = %s AND server_state = %s AND id > %s"
        " AND (outcome IN %s OR validate_state = %s) GROUP BY hostid",
        TRANSFER_FAILED, TRANSFER_FAILED, database.app_id, OVER, since,
        (CLIENT_ERROR, NO_REPLY, VALIDATE_ERROR), INVALID,
    )  # fmt: skip
    hosts = {int(row[0]) for row in failing}.union(suspended)
    if not hosts:
        return {}
    # Read other hosts' successes around the failed transfers, which show whether the server lost a file.
    first_s = min((row[1] for row in failing if row[1]), default=0)
    last_s = max((row[2] for row in failing), default=0)
    rows = database.execute(
        "SELECT r.hostid, r.outcome, r.exit_status, r.validate_state, r.received_time, r.report_deadline,"
        " IF(r.exit_status IN %s, r.xml_doc_in, '') FROM result r JOIN workunit w ON w.id = r.workunitid"
        " WHERE r.appid = %s AND r.server_state = %s AND r.id > %s AND w.error_mask & %s = 0"
        " AND (r.hostid IN %s OR (r.outcome = %s AND r.received_time BETWEEN %s AND %s))",
        TRANSFER_FAILED, database.app_id, OVER, since, CANCELLED,
        tuple(hosts), SUCCESS, first_s - SAME_MINUTE_S, last_s + SAME_MINUTE_S,
    )  # fmt: skip
    key = BoincKey.read(project.upload_public)
    ended: dict[int, list[Ended]] = defaultdict(list)
    for host, outcome, status, checked, received_s, deadline_s, description in rows:
        end = _end(outcome, status, checked, in_time=received_s < deadline_s)
        # The upload handler refuses files of tasks that were sent before `rotate-keys` or the restore of a project,
        # because they have the old key's certificate. That is no fault of the host.
        if end is End.LOST and key is not None and not key.has_certified(description):
            end = None  # made before the key was renewed
        if end is not None:
            ended[int(host)].append(Ended(received_s or deadline_s, end))
    return ended


def ban(database: BoincDatabase, hosts: Collection[int], *, banned: bool = True) -> None:
    """Ban hosts, so that BOINC's scheduler turns away their requests, or lift the ban.

    Raises:
        GridError: A host does not exist, or the database cannot be used.
    """
    # Check this first, so that a mistyped number is reported: an UPDATE of no row would be silent.
    known = {int(row[0]) for row in database.execute("SELECT id FROM host WHERE id IN %s", tuple(hosts))}
    if missing := sorted(set(hosts) - known):
        raise GridError(f"the project has no host {', '.join(map(str, missing))}: `vcdl hosts` lists them")
    database.execute("UPDATE host SET max_results_day = %s WHERE id IN %s", BANNED if banned else 0, tuple(hosts))


def banned_hosts(database: BoincDatabase) -> frozenset[int]:
    """Return the ids of the banned hosts, which BOINC's scheduler turns away.

    Raises:
        GridError: The database cannot be read.
    """
    return frozenset(int(row[0]) for row in database.execute("SELECT id FROM host WHERE max_results_day = %s", BANNED))


def hosts_at_work(database: BoincDatabase, account: int | None = None) -> frozenset[int]:
    """Return the ids of the hosts that may get work now: recently active, neither banned nor suspended.

    Args:
        database: BOINC's database.
        account: The only account whose hosts are returned; None: all hosts.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT id FROM host WHERE rpc_time > %s AND %s IN (0, userid) AND max_results_day <> %s AND NOT EXISTS"
        " (SELECT 1 FROM host_app_version h JOIN app_version v ON v.id = h.app_version_id"
        " WHERE v.appid = %s AND h.host_id = host.id AND h.n_jobs_today >= %s)",
        int(time.time()) - _ACTIVE_S, account or 0, BANNED, database.app_id, USED_UP,
    )  # fmt: skip
    return frozenset(int(row[0]) for row in rows)


def _end(outcome: int, status: int, checked: int, *, in_time: bool) -> End | None:
    """Classify how a task ended; return None if that says nothing about its host."""
    is_refused = outcome == VALIDATE_ERROR or (checked == INVALID and outcome == SUCCESS)
    # Test this before the other refusals: the validator refuses a missing file too, and mark_lost has set this status.
    if status in TRANSFER_FAILED and (is_refused or outcome == CLIENT_ERROR):
        return End.LOST
    if is_refused:
        return End.REFUSED
    if outcome == SUCCESS:
        return None if checked in _UNDECIDED else End.GOOD
    if outcome == CLIENT_ERROR:
        # The client aborted the task as late, although the server's deadline had not passed: its clock is ahead, and it
        # would give up every task at once. After the deadline the same status only means that the host was too busy.
        if status == NOT_BEGUN_IN_TIME and in_time:
            return End.CLOCK
        return None if status in NO_FAULT else End.ERROR
    return End.TIMEOUT if outcome == NO_REPLY else None
