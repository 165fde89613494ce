"""`vcdl_validate FILE`: BOINC's script_validator runs it for each result, as the only gate before credit and loop.

    exit 0    the upload is valid
    exit 10   it is refused: its host gets no credit, BOINC gives the workunit to another, the journal has the reason
    exit 3    it could not be looked at, after some tries

To BOINC everything but 0 and 3 is a refusal, a Python that cannot start (1) as well. So the launcher turns all
but 0 and 10 into 3, upon which BOINC makes another result at once; that spends one of the few that a workunit
may have, hence the tries.

A refusal never stops a daemon, and nothing of the upload is executed: it is read as raw arrays (vcdl.checks).
The file's name says which workunit it is for: of the other arguments that script_validator offers, none arrives
in BOINC 8.3.
"""

import argparse
import re
import stat
import sys
import time
from contextlib import closing
from pathlib import Path

from vcdl.boinc.daemons.daemon import add_project_option
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import host_name
from vcdl.checks import Refused
from vcdl.checks.refusal import Refusal
from vcdl.errors import GridError, VcdlError, WorkunitError
from vcdl.journal.events import ResultRefused
from vcdl.loop.spot_check import SpotCheck
from vcdl.run.run import Run
from vcdl.wire.workunit import WorkunitName

VALID, REFUSED, LATER = 0, 10, 3
_VALIDATED = 1
"""result.validate_state of a valid result."""
_TRIES = 5
_BETWEEN_TRIES_S = 2.0

_UPLOAD = re.compile(r"(?P<workunit>.+)_(?P<result>\d+)_r\d+_\d+")
"""BOINC's name of an output file: the workunit's, the number of the result among the workunit's, a random
number, the file's number.
"""


def validate(project: BoincProject, file: Path) -> int:
    """Check an upload; returns the exit code.

    Raises VcdlError or OSError when this machine cannot look at it: nobody is refused for that.
    """
    match = _UPLOAD.fullmatch(file.name)
    try:
        workunit = match["workunit"] if match else file.name
        name = WorkunitName.parse(workunit)
    except WorkunitError as error:
        print(f"{file.name}: {error}", file=sys.stderr)
        return REFUSED
    result = int(match["result"]) if match else 0
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
        return VALID
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
            rows = database.execute("SELECT hostid FROM result WHERE name = %s", result)
        except GridError as error:
            print(f"{result}: its host is not known: {error}", file=sys.stderr)
            return ""
    return host_name(rows[0][0]) if rows else ""


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
    parser = argparse.ArgumentParser(prog="vcdl_validate", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    add_project_option(parser)
    options = parser.parse_args()
    for tries_left in reversed(range(_TRIES)):
        try:
            return validate(BoincProject.at(options.project_dir), options.file)
        except (VcdlError, OSError) as error:
            print(f"{options.file.name} could not be looked at: {error}; {tries_left} tries left", file=sys.stderr)
            time.sleep(_BETWEEN_TRIES_S if tries_left else 0)
    return LATER


if __name__ == "__main__":
    sys.exit(main())
