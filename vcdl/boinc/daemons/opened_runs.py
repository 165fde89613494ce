"""Keep runs open between checks of their uploads.

A run is opened at its first upload, and again when its files have changed.
"""

from collections import OrderedDict

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject, Identity, identity_of
from vcdl.errors import unreadable
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

_KEPT = 16
"""Most runs that stay open, to limit memory and file descriptors, since a project may have hundreds of runs."""


class OpenedRuns:
    """The open runs of one project and a connection to its database, for one thread."""

    def __init__(self, project: BoincProject) -> None:
        self.project = project
        self.database = BoincDatabase(project)
        self._opened: OrderedDict[RunFolder, tuple[tuple[Identity, ...], Run]] = OrderedDict()

    def of(self, folder: RunFolder) -> Run:
        """Return the run in a folder, opened again if its files have changed; the runs used least recently are closed.

        Raises:
            RunFolderError, JobError: The run cannot be opened.
            FileUnavailable: This machine cannot read its files.
        """
        stamp = _stamp(folder)
        kept = self._opened.get(folder)
        # If a file is missing (no stamp), open the run, which raises the error that says which.
        if kept is None or kept[0] != stamp or stamp == ():
            kept = stamp, Run.open(folder)
            self._opened[folder] = kept
        # Runs without recent uploads are closed first, since their jobs are probably over.
        self._opened.move_to_end(folder)
        while len(self._opened) > _KEPT:
            self._opened.popitem(last=False)
        return kept[1]

    def close(self) -> None:
        self._opened.clear()
        self.database.close()


def _stamp(folder: RunFolder) -> tuple[Identity, ...]:
    """Return the identity of the run's files; () if one is missing. Raises FileUnavailable."""
    try:
        return tuple(map(identity_of, (folder.job_file, folder.prepared_file)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unreadable(folder.path, error) from error
