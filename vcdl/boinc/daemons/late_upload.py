"""Uploads of a subtask that is in the weights already: they earn credit like any other, and change nothing.

A second host may have been asked for a subtask (vcdl.boinc.grid.second_copies). BOINC then asks about both uploads, and
again about the first one when the other has come.
"""

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
    """Record a valid upload of a subtask that is applied, if the assimilator will not see it.

    It sees the canonical result of each workunit only. Raises GridError, JournalError.
    """
    rows = database.execute(
        "SELECT r.id, r.hostid, w.canonical_resultid FROM result r JOIN workunit w ON w.id = r.workunitid"
        " WHERE r.name = %s",
        result_name(file),
    )
    if rows and rows[0][2] not in (0, rows[0][0]):
        with closing(run.journal()) as journal:
            journal.append(UpdateSuperseded(workunit, file.stat().st_size, host_name(rows[0][1])))
