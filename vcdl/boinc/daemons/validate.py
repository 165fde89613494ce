"""`vcdl_validate FILE`: BOINC's script_validator runs it for each result, as the only gate before credit and loop.

    exit 0    the upload is valid
    exit 10   it is refused: its host gets no credit, BOINC gives the workunit to another, the journal has the reason
    exit 3    it could not be looked at, after some tries

A refusal never stops a daemon, and nothing of the upload is executed: it is read as raw arrays (vcdl.checks).
The file's name says which workunit it is for: of the other arguments that script_validator offers, none arrives
in BOINC 8.3.
"""

import stat
import sys
from contextlib import closing
from pathlib import Path

from vcdl.boinc.daemons.script import ACCEPTED, REFUSED, run_script, workunit_and_result
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import host_name, host_of
from vcdl.checks import Refused
from vcdl.checks.refusal import Refusal
from vcdl.errors import GridError, WorkunitError
from vcdl.journal.events import ResultRefused
from vcdl.loop.spot_check import SpotCheck
from vcdl.run.run import Run
from vcdl.wire.workunit import WorkunitName

_VALIDATED = 1
"""result.validate_state of a valid result."""


def validate(project: BoincProject, file: Path) -> int:
    """Check an upload; returns the exit code.

    Raises VcdlError or OSError when this machine cannot look at it: nobody is refused for that.
    """
    workunit, result = workunit_and_result(file)
    try:
        name = WorkunitName.parse(workunit)
    except WorkunitError as error:
        print(f"{file.name}: {error}", file=sys.stderr)
        return REFUSED
    folder = project.run_folder(name.job)
    if not folder.prepared_file.exists():
        if not project.has_runs:
            raise GridError(f"there are no jobs in {project.runs_folder}: is its disk mounted?")
        print(f"{file.name}: there is no job {name.job} in this project (any more)", file=sys.stderr)
        return REFUSED
    project.check_uploads()
    run = Run.open(folder)
    refused = _refused(run, file, workunit) or _idle(run, project, file, workunit)
    if refused is None:
        return ACCEPTED
    print(f"{file.name}: {refused.refusal.value}: {refused.detail}", file=sys.stderr)
    size = file.stat().st_size if file.exists() else 0
    with closing(run.journal()) as journal:
        journal.append(
            ResultRefused(
                workunit=workunit,
                result=result,
                refusal=refused.refusal.value,
                detail=refused.detail[:500],
                bytes_up=size,
                host=_host_of(project, f"{workunit}_{result}"),
            )
        )
    return REFUSED


def _idle(run: Run, project: BoincProject, file: Path, workunit: str) -> Refused | None:
    """Why an upload, if it is drawn, shows no effect of training."""
    check = SpotCheck(run)
    result = file.name.rpartition("_r")[0]
    if check.is_drawn(workunit, _valid_results(project, result)):
        return check.refused(file, workunit)
    return None


def _valid_results(project: BoincProject, result: str) -> int:
    """How many valid results the host of this one has brought; many when the database does not say."""
    with closing(BoincDatabase(project)) as database:
        try:
            rows = database.execute(
                "SELECT COUNT(*) FROM result AS other JOIN result AS this ON other.hostid = this.hostid"
                " WHERE this.name = %s AND other.appid = %s AND other.validate_state = %s",
                result, database.app_id, _VALIDATED,
            )  # fmt: skip
        except GridError as error:
            print(f"{result}: its host is not known: {error}", file=sys.stderr)
            return sys.maxsize
    return int(rows[0][0])


def _host_of(project: BoincProject, result: str) -> str:
    """The host of a result, by the result's name; empty when the database does not say."""
    with closing(BoincDatabase(project)) as database:
        try:
            host = host_of(database, result)
        except GridError as error:
            print(f"{result}: its host is not known: {error}", file=sys.stderr)
            return ""
    return "" if host is None else host_name(host)


def _refused(run: Run, file: Path, workunit: str) -> Refused | None:
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        is_file = False
    if not is_file:
        return Refused(Refusal.UNREADABLE, "there is no file")
    try:
        run.upload_check().examine(file, workunit, run.folder.snapshot(WorkunitName.parse(workunit).base_version))
    except Refused as refused:
        return refused
    return None


def main() -> int:
    """Check one result."""
    purpose = __doc__.partition("\n")[0]
    return run_script("vcdl_validate", purpose, 1, lambda project, files: validate(project, files[0]), sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
