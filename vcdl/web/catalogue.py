"""All jobs of a folder: which there are, in the order of `vcdl jobs`, and the views of those that somebody looks at."""

import os
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import RunFolderError, VcdlError
from vcdl.files.atomic import final_name
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished
from vcdl.run.standing import JobRow
from vcdl.web.job_view import JobView, Signature, signature_of

_FRESH_S = 1.0
"""Age up to which the list of names counts as new."""
_VIEWS = 64
"""Views that are kept in memory."""
_NAME = re.compile(r"[^./\0\ud800-\udfff][^/\0\ud800-\udfff]{0,62}")
"""Names that can be a folder's; those that begin with a dot are the service's own."""
PAGE = 50
"""Rows of a page of the list."""


class NoSuchJobError(RunFolderError):
    """The folder has no job of this name."""


@dataclass(frozen=True)
class UnreadableJob:
    """The row of a job that cannot be read."""

    job: str
    error: str

    def fields(self) -> dict[str, str | None]:
        """The keys of `vcdl jobs --json` that are known of it."""
        return {"job": self.job, "state": None, "error": self.error}


@dataclass(frozen=True)
class JobPage:
    """Some rows of the list."""

    rows: list[JobRow | UnreadableJob]
    after: str | None
    """The cursor of the next page; None: this is the last."""
    jobs: int
    """All jobs."""
    open: int
    """The jobs that are not finished."""


class JobCatalogue:
    """The jobs below a folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._listed: list[tuple[bool, str]] = []
        self._listed_s = -_FRESH_S
        self._finished: dict[str, int] = {}
        """Name of a finished job → the time of its folder at which it was."""
        self._rows: dict[str, tuple[Signature, JobRow]] = {}
        """Rows of jobs that are over."""
        self._views: OrderedDict[str, JobView] = OrderedDict()

    def listed(self) -> list[tuple[bool, str]]:
        """Whether it is finished, and the name, of each job, sorted. Raises RunFolderError."""
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
            raise RunFolderError(f"{self.runs} cannot be read ({error.strerror}): mend its rights") from error
        found = []
        for entry in entries:
            changed_ns = entry.stat().st_mtime_ns
            if self._finished.get(entry.name) == changed_ns:
                found.append((True, entry.name))
                continue
            folder = RunFolder(Path(entry.path))
            if not folder.job_file.is_file() or final_name(entry.name) != entry.name:
                continue
            if is_over := is_finished(folder):
                self._finished[entry.name] = changed_ns
            found.append((is_over, entry.name))
        return found

    def view(self, name: str) -> JobView:
        """The view of a job. Raises NoSuchJobError."""
        folder = self.folder(name)
        with self._lock:
            view = self._views.pop(name, None) or JobView(folder)
            self._views[name] = view
            if len(self._views) > _VIEWS:
                self._views.popitem(last=False)
            return view

    def folder(self, name: str) -> RunFolder:
        """The folder of a job; no other name than that of a job leads anywhere. Raises NoSuchJobError."""
        path = self.runs / name
        if not _NAME.fullmatch(name) or not (path / "job.yaml").is_file():
            raise NoSuchJobError(f"there is no job {name[:64]!r} here: `vcdl jobs` lists them")
        return RunFolder(path.resolve())

    def page(self, after: str = "", limit: int = PAGE, state: str = "") -> JobPage:
        """Rows behind a cursor; `state`: `open` or `finished` ones only. Raises RunFolderError."""
        listed = self.listed()
        chosen = [one for one in listed if not state or one[0] == (state == "finished")]
        begin = next((place for place, one in enumerate(chosen) if _cursor(one) > after), len(chosen)) if after else 0
        shown, rest = chosen[begin : begin + limit], chosen[begin + limit :]
        return JobPage(
            rows=[self.row(name) for _, name in shown],
            after=_cursor(shown[-1]) if rest else None,
            jobs=len(listed),
            open=sum(not is_over for is_over, _ in listed),
        )

    def row(self, name: str) -> JobRow | UnreadableJob:
        """The row of a job, from memory where it is over and nothing has changed."""
        try:
            folder = self.folder(name)
            signature = signature_of(folder)
            known = self._rows.get(name)
            if known is not None and known[0] == signature:
                return known[1]
            if not is_finished(folder):
                with self.view(name).current() as view:
                    return view.row()
            view = JobView(folder)
            with view.current():
                row = view.row()
            if not row.is_open:  # else its process is about to end
                self._rows[name] = signature, row
            return row
        except VcdlError as error:
            return UnreadableJob(name, str(error))


def project_of(runs: Path) -> Path | None:
    """The BOINC project whose jobs are in a folder; None: there is none."""
    path = Path(*runs.parts[:-2])
    return path if len(runs.parts) > 2 and (path / "config.xml").is_file() else None


def _cursor(listed: tuple[bool, str]) -> str:
    is_over, name = listed
    return f"{int(is_over)}.{name}"
