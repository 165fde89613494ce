"""The runs of a project against which uploads are checked: opened once, and again when their files have changed."""

from collections import OrderedDict
from dataclasses import dataclass

from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import unreadable
from vcdl.loop.spot_check import SpotCheck
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

_KEPT = 16
"""Runs that stay open; one with spot checks holds a model."""

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class OpenedRun:
    """A run, and its check for training's effect, which holds a model once it was needed."""

    run: Run
    spot_check: SpotCheck


class OpenedRuns:
    """The open runs of one project and a connection to its database, for one thread."""

    def __init__(self, project: BoincProject) -> None:
        self.project = project
        self.database = BoincDatabase(project)
        self._opened: OrderedDict[RunFolder, tuple[_Stamp, OpenedRun]] = OrderedDict()

    def of(self, folder: RunFolder) -> OpenedRun:
        """The run in a folder as its files are now. Raises RunFolderError, JobError, FileUnavailable."""
        stamp = _stamp(folder)
        kept = self._opened.get(folder)
        if kept is None or kept[0] != stamp or stamp == ():
            run = Run.open(folder)
            kept = stamp, OpenedRun(run, SpotCheck(run))
            self._opened[folder] = kept
        self._opened.move_to_end(folder)
        while len(self._opened) > _KEPT:
            self._opened.popitem(last=False)
        return kept[1]

    def close(self) -> None:
        self._opened.clear()
        self.database.close()


def _stamp(folder: RunFolder) -> _Stamp:
    """What changes when another file takes the place of the run's; () when one is missing. Raises FileUnavailable."""
    try:
        found = [path.stat() for path in (folder.job_file, folder.prepared_file)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unreadable(folder.path, error) from error
    return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
