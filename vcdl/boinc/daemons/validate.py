"""`vcdl_validate FILE`: check one upload; BOINC's script_validator runs it for each result.

This is the only check before the host gets credit and the loop applies the upload.

exit 0    the upload is valid
exit 10   it is refused: its host gets no credit, BOINC reissues the workunit, and the journal records the reason
exit 3    it could not be checked, after several tries

The launcher asks the resident checker first (vcdl.boinc.daemons.checker), and starts this program only if the checker
does not answer. BOINC treats every exit code except 0 and 3 as a refusal, even the 1 of a Python that cannot start. So
the launcher turns all codes except 0 and 10 into 3, after which BOINC repeats the check. A repeated check may cost one
of the few results that a workunit may have, so this program tries several times before it exits with 3.

A refusal never stops a daemon, and nothing in an upload is executed: it is read as raw arrays (vcdl.checks).

The workunit is known from the file's name: BOINC 8.3 passes none of the other arguments that script_validator offers.
"""

import argparse
import logging
import stat
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.daemons.daemon import add_project_option
from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import host_name, host_of, mark_lost, result_name, workunit_and_result
from vcdl.errors import GridError, VcdlError, WorkunitError
from vcdl.errors.refusal import Refusal, Refused
from vcdl.journal.events import ResultRefused, UpdateApplied, UpdateSuperseded
from vcdl.run.run import Run
from vcdl.wire.workunit import WorkunitName

_log = logging.getLogger("vcdl.validate")


ACCEPTED, REFUSED, LATER = 0, 10, 3
_TRIES = 5
"""Attempts before BOINC is asked to check later: with the pauses, enough for a restart of the database."""
_BETWEEN_TRIES_S = 2.0
"""Seconds between two attempts, so that a database has time to restart."""


@dataclass(frozen=True)
class Verdict:
    """The answer to BOINC about an upload: accepted, refused, or to be checked later."""

    code: int
    """The script's exit code."""
    why: str = ""
    """The reason, for the validator's log."""


def refusal(why: str) -> Verdict:
    return Verdict(REFUSED, why)


def validate(runs: OpenedRuns, file: Path) -> Verdict:
    """Check an upload and return the verdict; a refused one is deleted, and recorded if its job is known.

    Raises:
        VcdlError, OSError: This machine cannot check the upload, which is no reason to refuse it.
    """
    verdict = _verdict(runs, file)
    # Delete only below upload/: the script may be called by hand on any file.
    if verdict.code == REFUSED and file.parent.resolve().is_relative_to(runs.project.upload_dir.resolve()):
        _free(file)
    return verdict


def _free(file: Path) -> None:
    """Delete a refused upload: BOINC never deletes it, and nothing needs it."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s was refused, but not deleted: %s; see `vcdl project doctor`", file.name, error.strerror)


def _verdict(runs: OpenedRuns, file: Path) -> Verdict:
    project = runs.project
    workunit, result = workunit_and_result(file)
    try:
        name = WorkunitName.parse(workunit)
    except WorkunitError as error:
        return refusal(f"{file.name}: {error}")
    folder = project.run_folder(name.job)
    if not folder.prepared_file.exists():
        # An unmounted disk looks like a project without jobs, and a refusal is final: all uploads would be lost.
        if not project.has_runs:
            raise GridError(f"there are no jobs in {project.runs_folder}: is its disk mounted?")
        return refusal(f"{file.name}: there is no job {name.job} in this project (any more)")
    # Check upload/ before the file is opened: a disk mounted over it must be an error and not a refusal of each upload.
    project.check_uploads()
    run = runs.of(folder)
    # Find this out first: the base of an applied subtask may be deleted, and the full check would refuse honest work.
    is_late = _is_applied(run, workunit)
    reason = _find_refusal(run, file, workunit, is_late=is_late)
    if reason is None:
        if is_late:
            _record_superseded(run, runs.database, file, workunit)
        return Verdict(ACCEPTED)
    if reason.refusal is Refusal.NO_FILE:
        # Mark it before the journal's row. After a kill between the two, BOINC repeats the check, and both are written
        # again.
        mark_lost(runs.database, result_name(file))
    size = file.stat().st_size if file.exists() else 0
    with closing(run.journal()) as journal:
        journal.append(
            ResultRefused(
                workunit=workunit,
                result=result,
                refusal=reason.refusal.value,
                detail=reason.detail[:500],
                bytes_up=size,
                host=_host_of(runs, result_name(file)),
            )
        )
    return refusal(f"{file.name}: {reason.refusal.value}: {reason.detail}")


def _host_of(runs: OpenedRuns, result: str) -> str:
    """Return the host of a result, by the result's name; empty if the database cannot be read or lacks the result."""
    try:
        host = host_of(runs.database, result)
    except GridError as error:
        _log.warning("%s: its host is not known: %s", result, error)
        return ""
    return "" if host is None else host_name(host)


def _find_refusal(run: Run, file: Path, workunit: str, *, is_late: bool) -> Refused | None:
    """Return why an upload is refused; None if it is valid.

    If the base of a late upload is no longer stored, only the header is checked.
    """
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        is_file = False
    if not is_file:
        return Refused(Refusal.NO_FILE, "there is no file in upload/")
    try:
        with closing(run.journal()) as journal:
            check = run.upload_check(journal, is_over=is_late)
            base = run.folder.snapshot(check.read_header(file, workunit).base_version)
            if base.exists() or not is_late:
                check.examine(file, workunit, base)
    except Refused as refused:
        return refused
    return None


def _is_applied(run: Run, workunit: str) -> bool:
    """Return whether an update of the workunit's subtask was applied."""
    with closing(run.journal()) as journal:
        return journal.find(UpdateApplied.key_of(WorkunitName.parse(workunit).subtask)) is not None


def _record_superseded(run: Run, database: BoincDatabase, file: Path, workunit: str) -> None:
    """Record in the journal that a valid upload came after its subtask was applied, unless the assimilator will do so.

    The assimilator reads each workunit's canonical result only.

    Raises:
        GridError, JournalError: The database or the journal cannot be used.
    """
    rows = database.execute(
        "SELECT r.id, r.hostid, w.canonical_resultid FROM result r JOIN workunit w ON w.id = r.workunitid"
        " WHERE r.name = %s",
        result_name(file),
    )
    # The assimilator writes the row of the canonical result only, and while none is chosen (0), this result may become
    # it. Write the rows of all other results.
    if rows and rows[0][2] not in (0, rows[0][0]):
        with closing(run.journal()) as journal:
            journal.append(UpdateSuperseded(workunit, file.stat().st_size, host_name(rows[0][1])))


def main() -> int:
    """Check one result, with retries, and return the exit code."""
    parser = argparse.ArgumentParser(prog="vcdl_validate", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    add_project_option(parser)
    options = parser.parse_args()
    # Create OpenedRuns for each attempt, so that a broken connection or a half-written file is opened again.
    for tries_left in reversed(range(_TRIES)):
        try:
            with closing(OpenedRuns(BoincProject.at(options.project_dir))) as runs:
                verdict = validate(runs, options.file)
        except (VcdlError, OSError) as error:
            print(f"{options.file.name} could not be checked: {error}; {tries_left} tries left", file=sys.stderr)
            time.sleep(_BETWEEN_TRIES_S if tries_left else 0)
        else:
            if verdict.why:
                print(verdict.why, file=sys.stderr)
            return verdict.code
    return LATER


if __name__ == "__main__":
    sys.exit(main())
