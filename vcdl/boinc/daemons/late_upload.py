"""Uploads of a subtask that is in the weights already, as of a second host: they earn credit, and change nothing."""

from contextlib import closing
from pathlib import Path

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.results import host_name, result_name
from vcdl.journal.events import UpdateApplied, UpdateSuperseded
from vcdl.run.run import Run
from vcdl.wire.workunit import WorkunitName


def is_applied(run: Run, workunit: str) -> bool:
    """Whether an update of the workunit's subtask is in the weights. Raises JournalError."""
    with closing(run.journal()) as journal:
        return journal.find(UpdateApplied.key_of(WorkunitName.parse(workunit).subtask)) is not None


def record_superseded(run: Run, database: BoincDatabase, file: Path, workunit: str) -> None:
    """Record a valid upload of an applied subtask that the assimilator will not see: it sees each workunit's canonical
    result only. Raises GridError, JournalError.
    """
    rows = database.execute(
        "SELECT r.id, r.hostid, w.canonical_resultid FROM result r JOIN workunit w ON w.id = r.workunitid"
        " WHERE r.name = %s",
        result_name(file),
    )
    if rows and rows[0][2] not in (0, rows[0][0]):
        with closing(run.journal()) as journal:
            journal.append(UpdateSuperseded(workunit, file.stat().st_size, host_name(rows[0][1])))
