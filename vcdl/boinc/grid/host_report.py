"""Read facts about a job's hosts from BOINC's tables: failures, last contact, credit, bans and suspensions."""

from dataclasses import dataclass

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.host_care import BANNED, NO_FAULT, NOT_BEGUN_IN_TIME, read_suspensions
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import host_name
from vcdl.boinc.grid.suspension import Suspension
from vcdl.boinc.grid.workunit_rows import CLIENT_ERROR, IN_PROGRESS, NO_REPLY, of_job


@dataclass(frozen=True)
class HostFacts:
    """Facts about one host from BOINC's tables; the numbers of tasks are those of the job."""

    running: int
    """Number of tasks that the host has now."""
    errors: int
    timeouts: int
    credit: float
    """Credit granted for the job."""
    heard_of_s: float
    """Unix time of the host's last request, for any job."""
    banned: bool
    suspension: Suspension | None
    """The host's suspension over all jobs; None: it may get work."""


def facts_of(project: BoincProject, database: BoincDatabase, job: str) -> dict[str, HostFacts]:
    """Return BOINC's facts about each host that was sent tasks of a job, by the host's name in the journal.

    Raises:
        GridError: The database or the suspensions cannot be read.
    """
    match, arguments = of_job(job)
    # Use the same exit codes as host_care._end, so that `vcdl hosts` and the suspensions agree.
    rows = database.execute(
        "SELECT r.hostid, h.rpc_time, h.max_results_day, SUM(r.server_state = %s),"
        " SUM(r.outcome = %s AND (r.exit_status NOT IN %s OR"
        "  r.exit_status = %s AND r.received_time < r.report_deadline)), SUM(r.outcome = %s),"
        " SUM(r.granted_credit)"
        " FROM result r JOIN workunit w ON w.id = r.workunitid JOIN host h ON h.id = r.hostid"
        f" WHERE r.appid = %s AND {match} GROUP BY r.hostid, h.rpc_time, h.max_results_day",
        IN_PROGRESS, CLIENT_ERROR, NO_FAULT, NOT_BEGUN_IN_TIME, NO_REPLY, database.app_id, *arguments,
    )  # fmt: skip
    suspensions = read_suspensions(project).of
    return {
        host_name(host): HostFacts(
            running=int(running),
            errors=int(errors),
            timeouts=int(timeouts),
            credit=float(credit),
            heard_of_s=float(heard_s),
            banned=most == BANNED,
            suspension=suspensions.get(host),
        )
        for host, heard_s, most, running, errors, timeouts, credit in rows
    }


@dataclass(frozen=True)
class MeasuredHost:
    """The measurements that a host's BOINC client reported, without anything that identifies the host.

    Every number is the host's own claim.
    """

    available: float
    """Fraction of the time in which BOINC runs and may compute."""
    flops: float
    """Floating-point operations a second of one core."""
    cores: int
    up_bytes_per_s: float
    """Upload speed in bytes a second; 0: unknown."""
    down_bytes_per_s: float
    zone_s: int
    """Offset of the host's time zone from UTC, in seconds."""
    created_s: int
    """Unix time at which the host was attached to the project."""
    heard_of_s: int
    """Unix time of the host's last request."""


def measured_hosts(database: BoincDatabase) -> list[MeasuredHost]:
    """Return the hosts of a project that reported measurements, without banned and merged ones.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT on_frac * active_frac, p_fpops, p_ncpus, n_bwup, n_bwdown, timezone, create_time, rpc_time FROM host"
        # Leave out new hosts, which have zeros until their client has measured itself, and those that BOINC merged into
        # another row (userid 0), which would count twice.
        " WHERE on_frac > 0 AND active_frac > 0 AND p_fpops > 0 AND rpc_time > 0 AND userid > 0"
        " AND max_results_day <> %s ORDER BY id",
        BANNED,
    )
    return [
        MeasuredHost(
            available=float(available),
            flops=float(flops),
            cores=int(cores),
            up_bytes_per_s=float(up),
            down_bytes_per_s=float(down),
            zone_s=int(zone_s),
            created_s=int(created_s),
            heard_of_s=int(heard_s),
        )
        for available, flops, cores, up, down, zone_s, created_s, heard_s in rows
    ]
