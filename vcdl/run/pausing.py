"""A run that another process drives: asked to pause, and waited for; and a job of a BOINC project, released again."""

import time

from vcdl.errors import RunFolderError, folder_errors
from vcdl.journal.events import RunReopened
from vcdl.journal.journal import Journal
from vcdl.run.finding import is_finished, read_report, shown
from vcdl.run.folder import RunFolder

TIMEOUT_S = 60.0
"""Seconds to wait: checkpoints take a few; Keras at a run's start and a final evaluation take longest."""
_POLL_S = 0.1


def pause(folder: RunFolder, timeout_s: float = TIMEOUT_S) -> bool:
    """Ask a run to pause, and wait until it has; returns whether somebody was running it.

    Raises RunFolderError when that takes longer.
    """
    if folder.kind.has_daemons:
        return _take_back(folder, timeout_s)
    pid = folder.running_pid
    if pid is None:
        return False
    with folder_errors(folder.path):
        folder.stop_request.touch()
    deadline_s = time.monotonic() + timeout_s
    while folder.running_pid == pid:
        if time.monotonic() > deadline_s:
            raise RunFolderError(
                f"process {pid} still runs {shown(folder.path)} after {timeout_s:g} s; it has been asked to stop: "
                f"wait longer with --timeout, or end it with `kill {pid}`"
            )
        time.sleep(_POLL_S)
    folder.stop_request.unlink(missing_ok=True)
    return True


def release(folder: RunFolder) -> bool:
    """Let the daemons of a BOINC project continue a job; False: it is finished. Raises JournalError."""
    report = read_report(folder)
    if report.is_given_up:
        journal = Journal.at(folder.journal_file)
        journal.append(RunReopened())
        journal.close()
        folder.summary_file.unlink(missing_ok=True)
    elif is_finished(folder):
        return False
    folder.stop_request.unlink(missing_ok=True)
    return True


def _take_back(folder: RunFolder, timeout_s: float) -> bool:
    """Have a BOINC project's work generator cancel open workunits; the request stays until the job is released."""
    if is_finished(folder):
        return False
    with folder_errors(folder.path):
        folder.stop_request.touch()
    deadline_s = time.monotonic() + timeout_s
    while not read_report(folder).paused:
        if time.monotonic() > deadline_s:
            raise RunFolderError(
                f"{shown(folder.path)} is asked to stop, but the project's work generator has not done it after "
                f"{timeout_s:g} s: it will when it runs (bin/start starts it) and can continue the job: "
                "see log_HOST/vcdl_work_generator.log"
            )
        time.sleep(_POLL_S)
    return True
