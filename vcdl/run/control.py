"""Control a run, whether or not another process drives it: pause it, resume it, change its settings.

A run's processes follow its job.yaml: the daemons of a BOINC project read a changed one in their next round, a local
run when it is resumed. The journal records what was changed and when.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from vcdl.errors import JobError, RunFolderError, folder_errors
from vcdl.errors.backoff import wait_until
from vcdl.journal.events import RunReopened, SettingsChanged
from vcdl.journal.journal import Journal
from vcdl.run.finding import display_path
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished, read_report

if TYPE_CHECKING:  # help must not import what reads job files
    from vcdl.job import Job

TIMEOUT_S = 60.0
"""Seconds to wait, because a run reacts only between steps: a checkpoint takes a few seconds; importing Keras and a
final evaluation take longest."""


def pause(folder: RunFolder, timeout_s: float = TIMEOUT_S) -> bool:
    """Ask a run to pause by writing a file into its folder, and wait until it has; return whether it was running.

    Args:
        folder: The run's folder.
        timeout_s: Seconds to wait.

    Raises:
        RunFolderError: It did not pause in time, or its folder cannot be read.
    """
    if folder.kind.has_daemons:
        return _take_back(folder, timeout_s)
    pid = folder.running_pid
    if pid is None or not ask_to_pause(folder):
        return False
    # Not "until the lock is free": another process may have resumed the run in the meantime, which also shows that the
    # other one has stopped.
    if not wait_until(lambda: folder.running_pid != pid, timeout_s):
        raise RunFolderError(
            f"process {pid} still runs {display_path(folder.path)} after {timeout_s:g} s; it has been asked to stop: "
            f"wait longer with --timeout, or end it with `kill {pid}`"
        )
    folder.stop_request.unlink(missing_ok=True)
    return True


def ask_to_pause(folder: RunFolder) -> bool:
    """Ask a run to pause by writing a file into its folder, without waiting.

    Returns:
        False if nothing was asked, because the run is finished or no process drives it.

    Raises:
        RunFolderError: The folder cannot be read or written.
    """
    if is_finished(folder) or not (folder.kind.has_daemons or folder.running_pid is not None):
        return False
    with folder_errors(folder.path):
        folder.stop_request.touch()
    return True


def release(folder: RunFolder) -> bool:
    """Let the daemons of a BOINC project continue a paused or failed job; return False if it finished successfully.

    Raises:
        JournalError: The journal cannot be read or written.
    """
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
    """Wait until a BOINC project's work generator has cancelled the open workunits.

    The pause request stays until the job is released.
    """
    if not ask_to_pause(folder):
        return False
    if not wait_until(lambda: read_report(folder).history.paused, timeout_s):
        raise RunFolderError(
            f"{display_path(folder.path)} has been asked to stop, but the project's work generator has not reacted "
            f"within {timeout_s:g} s: it will do so once it runs (bin/start starts it) and can process the job: "
            "see log_HOST/vcdl_work_generator.log"
        )
    return True


_ENDS = ("stop.wall_time_s", "stop.patience", "stop.target_accuracy", "stop.target")
_ANY = (*_ENDS, "grid.tries", "pacing.queue_ahead")
BOINC_KEYS = ("boinc.share", "boinc.deadline_s", "boinc.shortest_deadline_s", "boinc.fresh_weights", *_ANY)
"""The keys of a BOINC job that may be changed."""
_RATE = "training.learning_rate"
LOCAL_KEYS = (_RATE, "grid.workers", "grid.timeout_s", "grid.servers", *_ANY)
"""The keys of a paused local run that may be changed, by `vcdl set` for instance."""
_EPOCHS = "stop.epochs"
_WHY = (
    "everything else already determines workunits, weights and results: start a new run of its job.yaml by `vcdl run` "
    "with --set and another --out"
)
_WHY_EPOCHS = (
    "the learning rate and alpha follow schedules over all epochs. To end sooner, set stop.wall_time_s, stop.patience "
    "or stop.target, or use `vcdl stop`; to train longer, start a job with `model: {from: RUN}` after its end"
)


def keys_of(folder: RunFolder) -> tuple[str, ...]:
    """Return the keys of a run's job file that may be changed after its start, each `section.key`."""
    return BOINC_KEYS if folder.kind.has_daemons else LOCAL_KEYS


def change(folder: RunFolder, settings: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Change settings of an open run in its job file, and record the change in its journal.

    Args:
        folder: The run's folder.
        settings: The new settings, each `KEY=VALUE`.

    Returns:
        Changed key → its old and new value; empty if nothing differs.

    Raises:
        JobError: A setting cannot be changed, or the value is invalid.
        RunFolderError: The run is finished, or a process that does not follow changes is running it.
        JournalError: The change cannot be recorded.
    """
    from vcdl.job import load_frozen_job, save_job

    asked = list(dict.fromkeys(".".join(setting.partition("=")[0].strip().split(".")[:2]) for setting in settings))
    before = load_frozen_job(folder.job_file)
    job = load_frozen_job(folder.job_file, settings)  # first: an unknown key is refused with the nearest known one
    _check_changes(folder, before, asked)
    old, new = _flat(before), _flat(job)
    changed = {key: (old.get(key), new.get(key)) for key in asked if old.get(key) != new.get(key)}
    if changed:
        with closing(Journal.existing(folder.journal_file)) as journal:
            journal.append(SettingsChanged(" ".join(f"{key}={now}" for key, (_, now) in changed.items())))
        save_job(job, folder.job_file)
    return changed


def _check_changes(folder: RunFolder, job: "Job", asked: Sequence[str]) -> None:
    """Raise JobError or RunFolderError if one of the keys `asked` must not be changed now."""
    allowed = keys_of(folder)
    for key in asked:
        if key not in allowed:
            why = _WHY_EPOCHS if key == _EPOCHS else f"only {', '.join(allowed)}; {_WHY}"
            raise JobError(f"{key} cannot be changed in {display_path(folder.path)}: {why}")
    if is_finished(folder) and not read_report(folder).is_given_up:
        raise RunFolderError(f"{display_path(folder.path)} is finished: there is nothing left to change")
    if not folder.kind.has_daemons and (pid := folder.running_pid) is not None:
        raise RunFolderError(
            f"process {pid} runs {display_path(folder.path)}: use `vcdl stop`, repeat this command, then use `vcdl "
            "resume`"
        )
    if _RATE in asked and job.is_for_strangers:
        raise JobError(
            f"{_RATE} cannot be changed in {display_path(folder.path)}: the bounds on strangers' uploads were measured "
            "at the old rate; start a new run"
        )


def _flat(job: "Job") -> Mapping[str, Any]:
    """Return a job's settings in one dict, `section.key` → value."""
    sections = {name: values for name, values in job.to_plain_values().items() if isinstance(values, dict)}
    return {f"{name}.{key}": value for name, values in sections.items() for key, value in values.items()}
