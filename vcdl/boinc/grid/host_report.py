"""Facts from BOINC's tables about the hosts of a job: failures, last contact, credit, bans and suspensions."""

from dataclasses import dataclass

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.host_care import BANNED, NO_FAULT, NOT_BEGUN_IN_TIME, read_rests
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.rest import Rest
from vcdl.boinc.grid.results import host_name
from vcdl.boinc.grid.workunit_rows import CLIENT_ERROR, IN_PROGRESS, NO_REPLY, of_job


@dataclass(frozen=True)
class HostFacts:
    """One host; tasks are those of the job."""

    running: int
    """Tasks that it has."""
    errors: int
    timeouts: int
    credit: float
    """Granted for the job."""
    heard_of_s: float
    """Unix time of its last request, for whatever job."""
    banned: bool
    rest: Rest | None
    """The host's suspension over all jobs; None: it may have work."""


def facts_of(project: BoincProject, database: BoincDatabase, job: str) -> dict[str, HostFacts]:
    """Return the hosts that were sent tasks of a job, by their names in the journal. Raises GridError."""
    match, arguments = of_job(job)
    rows = database.execute(
        "SELECT r.hostid, h.rpc_time, h.max_results_day, SUM(r.server_state = %s),"
        " SUM(r.outcome = %s AND (r.exit_status NOT IN %s OR"
        "  r.exit_status = %s AND r.received_time < r.report_deadline)), SUM(r.outcome = %s),"
        " SUM(r.granted_credit)"
        " FROM result r JOIN workunit w ON w.id = r.workunitid JOIN host h ON h.id = r.hostid"
        f" WHERE r.appid = %s AND {match} GROUP BY r.hostid, h.rpc_time, h.max_results_day",
        IN_PROGRESS, CLIENT_ERROR, NO_FAULT, NOT_BEGUN_IN_TIME, NO_REPLY, database.app_id, *arguments,
    )  # fmt: skip
    rests = read_rests(project).of
    return {
        host_name(host): HostFacts(
            running=int(running),
            errors=int(errors),
            timeouts=int(timeouts),
            credit=float(credit),
            heard_of_s=float(heard_s),
            banned=most == BANNED,
            rest=rests.get(host),
        )
        for host, heard_s, most, running, errors, timeouts, credit in rows
    }
