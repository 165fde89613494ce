"""List the jobs of a folder of runs in the order of `vcdl jobs`, and cache what was read from them."""

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import RunFolderError, VcdlError
from vcdl.files.atomic import final_name
from vcdl.report.note import RunNote
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished
from vcdl.run.standing import JobRow
from vcdl.web.job_view import JobView, Signature, signature_of

_FRESH_S = 1.0
"""Seconds for which the list of names is reused, so that many requests cost one reading of the folder."""
_VIEWS = 64
"""Most job views in memory, since each has thousands of journal rows; the least recently used one is dropped first."""
_NAME = re.compile(r"[^./\0\ud800-\udfff][^/\0\ud800-\udfff]{0,62}")
"""Names that a job's folder may have; names that begin with a dot are the service's own."""
PAGE = 50
"""Rows per page of the list, so that it stays below 100 kB."""
_READS_S = 0.5
"""Seconds for which sorting by score may read jobs, so that a page is quick; jobs that were not read come last."""


class NoSuchJobError(RunFolderError):
    """The folder has no job of this name."""


@dataclass(frozen=True)
class UnreadableJob:
    """The row of a job that cannot be read."""

    job: str
    error: str

    def fields(self) -> dict[str, str | None]:
        """Return the known keys of `vcdl jobs --json`."""
        return {"job": self.job, "state": None, "error": self.error}


@dataclass(frozen=True)
class JobPage:
    """One page of the list of jobs."""

    rows: list[JobRow | UnreadableJob]
    after: str | None
    """Cursor of the next page, or None for the last page."""
    jobs: int
    """Number of all jobs in the folder, whatever the page was restricted to."""
    open: int
    """Number of all jobs that are not finished."""


class JobCatalogue:
    """Lists the jobs of a folder of runs, and caches their names, the rows of finished jobs and recently used views."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._listed: list[tuple[bool, str]] = []
        self._listed_s = -_FRESH_S
        self._finished: dict[str, int] = {}
        """Name of a finished job → the modification time of its folder when that was found."""
        self._rows: dict[str, tuple[Signature, JobRow]] = {}
        """Rows of finished jobs, by name."""
        self._views: OrderedDict[str, JobView] = OrderedDict()

    def list_jobs(self) -> list[tuple[bool, str]]:
        """Return the pairs (is finished, name) of all jobs: the open ones first, then by name.

        The list is at most a second old.

        Raises:
            RunFolderError: The folder cannot be read.
        """
        with self._lock:
            if time.monotonic() - self._listed_s >= _FRESH_S:
                self._listed = sorted(self._list())
                self._listed_s = time.monotonic()
            return self._listed

    def _list(self) -> list[tuple[bool, str]]:
        try:
            entries = [entry for entry in os.scandir(self.runs) if not entry.name.startswith(".") and entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunFolderError(f"{self.runs} cannot be read ({error.strerror}): correct its permissions") from error
        found = []
        for entry in entries:
            # A finished job's folder no longer changes, so an unchanged modification time means that nothing is new.
            # A resume changes it, because it adds and removes files.
            changed_ns = entry.stat().st_mtime_ns
            if self._finished.get(entry.name) == changed_ns:
                found.append((True, entry.name))
                continue
            folder = RunFolder(Path(entry.path))
            # A folder that is being copied or written has a temporary name.
            if not folder.job_file.is_file() or final_name(entry.name) != entry.name:
                continue
            if is_over := is_finished(folder):
                self._finished[entry.name] = changed_ns
            found.append((is_over, entry.name))
        return found

    def view(self, name: str) -> JobView:
        """Return the view of a job, which all requests for this job share.

        At most `_VIEWS` views stay in memory: a dropped one is created again at the next call, and then reads the
        journal again.

        Raises:
            NoSuchJobError: There is no such job.
        """
        folder = self.folder(name)
        with self._lock:
            # Remove and insert it, so that the least recently used view is the first to go.
            view = self._views.pop(name, None) or JobView(folder)
            self._views[name] = view
            if len(self._views) > _VIEWS:
                self._views.popitem(last=False)
            return view

    def folder(self, name: str) -> RunFolder:
        """Return the run folder of a job.

        A name that is no job's is refused, so that a request's name cannot lead out of the folder of runs.

        Raises:
            NoSuchJobError: There is no such job.
        """
        path = self.runs / name
        if not _NAME.fullmatch(name) or not (path / "job.yaml").is_file():
            raise NoSuchJobError(f"there is no job {name[:64]!r} here: `vcdl jobs` lists them")
        return RunFolder(path.resolve())

    def page(self, after: str = "", limit: int = PAGE, state: str = "", search: str = "", sort: str = "") -> JobPage:
        """Return one page of the list.

        Args:
            after: The cursor in the previous page, or an empty string for the first page.
            limit: Most rows.
            state: `open` or `finished` for only these jobs, or an empty string for all.
            search: Words that must all occur in the name, the note or the tags of a job.
            sort: `measure` for best score first, `newest`, or an empty string for open jobs first, then by name.

        Raises:
            RunFolderError: The folder cannot be read.
        """
        listed, words = self.list_jobs(), search.casefold().split()
        chosen = [one for one in listed if not state or one[0] == (state == "finished")]
        chosen = [one for one in chosen if not words or self._has(one[1], words)]
        if sort:
            # Sort newest first, even before sorting by score: sorted() is stable, so jobs of equal score stay in this
            # order.
            chosen.sort(key=lambda one: self._began_s(one[1]), reverse=True)
            chosen = self._best_first(chosen) if sort == "measure" else chosen
            begin = int(after) if after.isdecimal() else 0
        else:
            # Continue after the cursor's place in the order, not after the index of its name: the job may have finished
            # or disappeared.
            begin = next((at for at, one in enumerate(chosen) if _cursor(one) > after), len(chosen)) if after else 0
        shown, rest = chosen[begin : begin + limit], chosen[begin + limit :]
        return JobPage(
            rows=[self.row(name) for _, name in shown],
            after=None if not rest else str(begin + limit) if sort else _cursor(shown[-1]),
            jobs=len(listed),
            open=sum(not is_over for is_over, _ in listed),
        )

    def _has(self, name: str, words: Sequence[str]) -> bool:
        if all(word in name.casefold() for word in words):
            return True
        searched = f"{name}\n{RunNote.read(RunFolder(self.runs / name).note_file).words}".casefold()
        return all(word in searched for word in words)

    def _began_s(self, name: str) -> float:
        with suppress(OSError):
            return (self.runs / name / "host").stat().st_mtime
        return 0.0

    def _best_first(self, jobs: Sequence[tuple[bool, str]]) -> list[tuple[bool, str]]:
        """Return the jobs grouped by metric, each group from the best score to the worst.

        Jobs without a score come last, and so do those that could not be read within `_READS_S` seconds.
        """
        end_s = time.monotonic() + _READS_S

        def place(one: tuple[bool, str]) -> tuple[bool, str, float]:
            row = self.row(one[1]) if one[1] in self._rows or time.monotonic() < end_s else None
            if isinstance(row, JobRow) and row.score is not None:
                return False, row.monitor, -row.score
            return True, "", 0.0

        return sorted(jobs, key=place)

    def row(self, name: str) -> JobRow | UnreadableJob:
        """Return the row of a job in the list, from memory if the job is finished and its files are unchanged.

        A job that cannot be read gets a row with the error, so that one damaged job does not hide the others.
        """
        try:
            folder = self.folder(name)
            signature = signature_of(folder)
            known = self._rows.get(name)
            if known is not None and known[0] == signature:
                return known[1]
            # An open job's view stays in memory, because it is requested again. There may be thousands of finished
            # jobs, so their views are dropped once the row is known.
            if not is_finished(folder):
                with self.view(name).current() as view:
                    return view.row()
            view = JobView(folder)
            with view.current():
                row = view.row()
            if not row.is_open:  # otherwise its process is about to end
                self._rows[name] = signature, row
            return row
        except VcdlError as error:
            return UnreadableJob(name, str(error))


def project_of(runs: Path) -> Path | None:
    """Return the folder of the BOINC project that contains a folder of runs, or None if no project does."""
    path = Path(*runs.parts[:-2])
    return path if len(runs.parts) > 2 and (path / "config.xml").is_file() else None


def _cursor(listed: tuple[bool, str]) -> str:
    is_over, name = listed
    return f"{int(is_over)}.{name}"
