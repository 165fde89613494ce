"""Bring a restored database up to date with the jobs' journals, as the project's user.

python -m vcdl.boinc.server.reconcile PROJECT SECONDS_SINCE_THE_BACKUP

The database of a backup is older than its journals by the minutes that the backup took. Subtasks that ended in between
would be sent and trained again for nothing, so their workunits are cancelled. Deadlines of unfinished tasks may have
passed while there was no server, so they are extended by the seconds since the backup.
"""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import has_arrived
from vcdl.boinc.grid.workunit_rows import IN_PROGRESS, WorkunitRows
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_history
from vcdl.run.folder import RunFolder


def reconcile(project: BoincProject, database: BoincDatabase) -> int:
    """Cancel the workunits that no journal lists as open, and return their number.

    Raises:
        GridError, JournalError: The database or a journal cannot be used.
    """
    count = 0
    for path in sorted(project.runs_folder.iterdir()) if project.runs_folder.is_dir() else []:
        folder = RunFolder(path)
        if not folder.journal_file.is_file():
            continue
        with closing(Journal.existing(folder.journal_file)) as journal:
            # The journals are newer than the database (decision 082), so their state decides.
            still_open = set(kept_history(journal).advance().open)
        rows = WorkunitRows(database, path.name)
        over = [name for name in rows.unfinished_names() if name not in still_open]
        rows.cancel(over, partial(has_arrived, project))
        count += len(over)
    return count


def move_deadlines(database: BoincDatabase, by_s: int) -> None:
    """Extend the deadlines of unfinished tasks, since hosts could not report while there was no server.

    Args:
        database: BOINC's database.
        by_s: Seconds by which each deadline is extended.

    Raises:
        GridError: The database cannot be used.
    """
    database.execute(
        "UPDATE result SET report_deadline = report_deadline + %s WHERE server_state = %s", by_s, IN_PROGRESS
    )


def main(project_dir: str, since_backup_s: str) -> None:
    """Reconcile the database, and move the deadlines.

    Raises:
        GridError, JournalError: The database or a journal cannot be used.
    """
    project = BoincProject.at(Path(project_dir))
    with closing(BoincDatabase(project)) as database:
        reconcile(project, database)
        move_deadlines(database, int(since_backup_s))


if __name__ == "__main__":
    main(*sys.argv[1:])
