"""Find runs on disk, and name them in messages and commands."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from vcdl.errors import RunFolderError
from vcdl.files.atomic import final_name
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished

RUNS = Path("runs")
"""The folder of new runs, unless `--out` names another."""


_NAME_LENGTH = 63
"""Longest name of a job, because the schema allows no more (vcdl.job.schema)."""
SUBMITTED = Path("vcdl/runs")
"""The folder of jobs within a BOINC project."""
_NOTHING_RUN = f"there is no run below {RUNS}/ here: give the run's folder, or start one with `vcdl run`"
_NOTHING_SUBMITTED = "there is no job below {}: `vcdl submit` starts one"


def find_run(path: Path | None, project_dir: Path | None = None, *, running_first: bool = True) -> RunFolder:
    """Return the run that a user means: the one in a folder, the project's job of a name, or the newest one.

    Args:
        path: The run's folder, or with `project_dir` the job's name. None: the run whose journal changed last.
        project_dir: The folder of a BOINC project, or None for runs below runs/.
        running_first: Without a path, whether to prefer runs that a process drives now.

    Raises:
        RunFolderError: There is no such run.
    """
    if path is not None:
        return RunFolder.existing(path if project_dir is None else project_dir / SUBMITTED / path)
    found = all_runs(project_dir)
    if not found:
        raise no_run(project_dir)
    return RunFolder.existing(
        # A user who names no run usually means the running one, even if files of a finished one changed later.
        max(found, key=lambda folder: (running_first and folder.running_pid is not None, _changed_s(folder))).path
    )


def all_runs(project_dir: Path | None = None) -> list[RunFolder]:
    """Return the runs below runs/, or the jobs of a BOINC project, sorted by name."""
    return runs_in(RUNS if project_dir is None else project_dir / SUBMITTED)


def runs_in(runs: Path) -> list[RunFolder]:
    """Return the runs in a folder, sorted by name."""
    folders = (job_file.parent for job_file in runs.glob("*/job.yaml")) if runs.is_dir() else ()
    # A folder under a temporary name is not complete yet.
    return [RunFolder(path) for path in sorted(folders) if final_name(path.name) == path.name]


def no_run(project_dir: Path | None) -> RunFolderError:
    """Create the error to raise when no run exists.

    Args:
        project_dir: The BOINC project that was searched for jobs, or None if runs/ was searched.
    """
    return RunFolderError(_NOTHING_RUN if project_dir is None else _NOTHING_SUBMITTED.format(project_dir / SUBMITTED))


def distinct_names(folders: Sequence[RunFolder]) -> list[str]:
    """Return the runs' names. Two runs of the same name get their parent folder's name too."""
    names = [folder.path.name for folder in folders]
    return [
        name if names.count(name) == 1 else f"{folder.path.parent.name}/{name}"
        for name, folder in zip(names, folders, strict=True)
    ]


def numbered_names(name: str) -> Iterator[str]:
    """Yield a job's name, then NAME-2, NAME-3 and so on, shortened to the longest name that a job may have."""
    yield name
    yield from (f"{name[: _NAME_LENGTH - 1 - len(str(number))]}-{number}" for number in range(2, 10_000))


def new_run(name: str) -> RunFolder:
    """Return a free folder for a new run, without creating it: runs/NAME, or runs/NAME-2, ….

    Raises:
        RunFolderError: One of these runs is unfinished, or no name is free.
    """
    for path in (RUNS / longer for longer in numbered_names(name)):
        # Resolve the path, so that the run keeps working when the process changes its current folder.
        if not holds_anything(path):
            return RunFolder(path.resolve())
        folder = RunFolder(path)
        if folder.job_file.is_file() and not is_finished(folder):
            raise unfinished_error(path)
    raise RunFolderError(f"no name is free for {name} below {RUNS}/: choose a folder with --out")


def folder_for(name: str, out: Path | None) -> RunFolder:
    """Return the folder for a new run, without creating it.

    Args:
        name: The job's name.
        out: The folder that the user named, which must be empty or missing; None for a free one below runs/.

    Raises:
        RunFolderError: The folder has other content, or an unfinished run.
    """
    if out is None:
        return new_run(name)
    folder = RunFolder(out.resolve())
    if not holds_anything(out):
        return folder
    if folder.job_file.is_file() and not is_finished(folder):
        raise unfinished_error(out)
    raise RunFolderError(f"{out} is not empty: choose another folder (--out, or out= in Python)")


def unfinished_error(path: Path) -> RunFolderError:
    """Return the error that an unfinished run already uses the folder, with the command to resume it."""
    return RunFolderError(
        f"{path} holds a run that is not finished: continue with `vcdl resume {quote_path(path)}`, or choose another "
        "folder with --out"
    )


def holds_anything(path: Path) -> bool:
    """Return whether a path is a file, or a folder with more in it than a run leaves that was killed at its start."""
    if not path.is_dir():
        return path.exists()
    # These files are written before the job file. If they are alone, the process was killed before it made anything
    # worth keeping.
    return any(final_name(entry.name) not in ("run.lock", "host", "given") for entry in path.iterdir())


def display_path(path: Path) -> Path:
    """Return a path relative to the current folder if it is inside it, otherwise unchanged."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def quote_path(path: Path) -> str:
    """Return a path as short as possible for a command, quoted for the shell where necessary."""
    return shlex.quote(str(display_path(path)))


def resume_hint(folder: RunFolder) -> str:
    """Return a clause for a message, without a full stop, about how to resume an unfinished run.

    Raises:
        RunFolderError: The run's kind is unknown.
    """
    return folder.kind.how_to_resume(quote_path(folder.path))


def _changed_s(folder: RunFolder) -> float:
    """Return the Unix time at which a run's job file or journal last changed.

    SQLite first writes to the journal's `-wal` file.
    """
    log = folder.journal_file.with_name(f"{folder.journal_file.name}-wal")
    return max(path.stat().st_mtime for path in (folder.job_file, folder.journal_file, log) if path.is_file())
