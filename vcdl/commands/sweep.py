"""`vcdl sweep`: search a job's settings by many runs, which Optuna chooses and ends early if they fall behind."""

import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.commands._elsewhere import client_of
from vcdl.commands._options import job_file_argument, say, set_option
from vcdl.errors import ExitCode, JobError, RunFolderError, folder_errors
from vcdl.files.children import start_child
from vcdl.files.extras import require

if TYPE_CHECKING:
    import optuna

    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl sweep job.yaml --over training.learning_rate=1e-4..1e-1
  vcdl sweep job.yaml --trials 40 --over training.batch_size=16,32,64 --over update.staleness_damping=0.05..0.5
  optuna-dashboard sqlite:///runs/NAME-sweep/sweep.db       its trials in a browser (pip install optuna-dashboard)

Ctrl-C pauses it; the same command continues."""
_LOOK_S = 0.5
"""Seconds between two looks at a trial: short enough to prune between epochs of small jobs."""
_FOLDER = "folder"
"""Attribute of a trial that stores the name of its folder."""
_RANGE = re.compile(r"([^.,]\S*?)\.\.(\S+)")
_BY_FACTORS = 100
"""Ratio of a range's ends from which it is searched on a logarithmic scale, because equal steps would ignore its low
end."""


class SearchKey:
    """A key of the job file with the values to try, given as `KEY=LOW..HIGH` or `KEY=A,B,C`."""

    def __init__(self, text: str) -> None:
        """Parse the text of an option `--over`.

        Raises:
            JobError: The text is not a valid range or list.
        """
        self.key, _, values = text.partition("=")
        found = _RANGE.fullmatch(values)
        self.choices = [] if found else [value for value in values.split(",") if value]
        if not self.key or (not found and len(self.choices) < 2):
            raise JobError(f"--over {text}: give KEY=LOW..HIGH or KEY=A,B,C")
        if found:
            try:
                low, high = float(found[1]), float(found[2])
            except ValueError:
                raise JobError(f"--over {text}: LOW and HIGH are numbers") from None
            if not low < high < float("inf"):
                raise JobError(f"--over {text}: LOW must be below HIGH")
            self.low, self.high = low, high
            # If both ends are whole numbers, all values are whole numbers: 16..64 is not a learning rate.
            self.is_whole = all(re.fullmatch(r"-?\d+", end) for end in found.groups())
            self.by_factors = low > 0 and high / low >= _BY_FACTORS

    @property
    def ends(self) -> list[str]:
        """Settings KEY=VALUE with the ends of the range, or with each listed value, by which the job is checked."""
        return [f"{self.key}={value}" for value in self.choices or [self._format(self.low), self._format(self.high)]]

    def setting(self, trial: "optuna.Trial") -> str:
        """Have Optuna choose a trial's value of this key, and return it as KEY=VALUE."""
        value: Any
        if self.choices:
            value = trial.suggest_categorical(self.key, self.choices)
        elif self.is_whole:
            value = trial.suggest_int(self.key, int(self.low), int(self.high), log=self.by_factors)
        else:
            value = trial.suggest_float(self.key, self.low, self.high, log=self.by_factors)
        return f"{self.key}={value}"

    def _format(self, value: float) -> str:
        return str(int(value)) if self.is_whole else repr(value)


def sweep(
    job_file: Path, over: Sequence[str], trials: int, overrides: Sequence[str] = (), server: str | None = None
) -> ExitCode:
    """Train a job with settings that Optuna chooses, one trial after the other, and print the best.

    All trials and their results are in the sweep's folder, so the same command continues an interrupted sweep.

    Args:
        job_file: The job file.
        over: The keys to search and their values, as for SearchKey.
        trials: Number of trials that must be complete or pruned in total; failed ones do not count.
        overrides: Settings KEY=VALUE of all trials.
        server: Name of a service that trains the trials, or None for this machine.

    Raises:
        VcdlError: The job or the values are invalid, or a trial cannot be trained.
    """
    require("sweep", "optuna")
    import optuna

    from vcdl.commands._sweep_there import train_remotely
    from vcdl.files.lock import FileLock
    from vcdl.job import load_job
    from vcdl.journal.monitor import MAX
    from vcdl.run.finding import RUNS, display_path

    keys = [SearchKey(text) for text in over]
    job = load_job(job_file, overrides)
    for key in keys:
        # Check both ends before the first trial: a value that the job file refuses would fail hours later.
        for setting in key.ends:
            load_job(job_file, [*overrides, setting])
    client = None if server is None else client_of(server)
    folder = (RUNS / f"{job.name}-sweep{'' if server is None else f'-{server}'}").resolve()
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Lock the folder: a second sweep in it would take the running trials of the first one for abandoned and end them.
    with closing(FileLock(folder / "sweep.lock")) as lock:
        if not lock.acquire(wait_s=0):
            raise RunFolderError(
                f"another process is running the sweep in {display_path(folder)}: wait for it, or stop it"
            )
        study = optuna.create_study(
            storage=f"sqlite:///{folder / 'sweep.db'}",
            study_name=job.name,
            direction="maximize" if job.monitor.mode == MAX else "minimize",
            load_if_exists=True,
        )
        _take_up(study)
        click.echo(
            f"watch it: pip install optuna-dashboard; optuna-dashboard sqlite:///{display_path(folder / 'sweep.db')}"
        )
        # Failed trials do not count, so that a resumed sweep still makes as many as requested.
        while len(_ended_trials(study)) < trials:
            trial = study.ask()
            settings = [key.setting(trial) for key in keys]
            # A trial that continues an interrupted trial keeps its folder, and with it the epochs that it has.
            path = folder / trial.user_attrs.get(_FOLDER, f"trial-{trial.number:04d}")
            trial.set_user_attr(_FOLDER, path.name)
            arguments = [word for setting in (*overrides, *settings) for word in ("--set", setting)]
            click.echo(f"trial {trial.number}: {' '.join(settings)}")
            if client is None:
                said = _train_trial(study, trial, path, [str(job_file), *arguments])
            else:
                said = train_remotely(study, trial, client, job_file, [*overrides, *settings])
            click.echo(f"trial {trial.number}: {said}")
    best = study.best_trial
    where = f": {display_path(folder / best.user_attrs[_FOLDER])}" if client is None else ""
    click.echo(f"best {job.monitor.name} {best.value:.4f}, trial {best.number}{where}")
    return say(f"  --set {name}={value}" for name, value in best.params.items())


def _ended_trials(study: "optuna.Study") -> list[Any]:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _take_up(study: "optuna.Study") -> None:
    """Queue the trials that an interrupted sweep left unfinished again, with their settings and folders."""
    from optuna.trial import TrialState

    for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        # Skip a trial without a recorded folder, which was killed before it trained anything.
        if _FOLDER in left.user_attrs:
            study.enqueue_trial(left.params, user_attrs=left.user_attrs)
        # End the old trial, because Optuna cannot continue one: the queued one takes its place.
        study.tell(left.number, state=TrialState.FAIL)


def _train_trial(study: "optuna.Study", trial: "optuna.Trial", path: Path, arguments: list[str]) -> str:
    """Train a trial in a process of its own, report its result to Optuna, and return a text about it.

    If the run's folder exists, the run is continued.

    Args:
        study: The sweep.
        trial: The trial.
        path: The folder of its run.
        arguments: Job file and options for `vcdl run`.

    Raises:
        KeyboardInterrupt: Somebody has paused the run.
        RunFolderError: The trial failed.
    """
    from optuna.trial import TrialState

    from vcdl.run.control import pause
    from vcdl.run.finding import display_path
    from vcdl.run.folder import RunFolder

    folder = RunFolder(path)
    if folder.running_pid is not None:  # the process of a sweep that was killed
        pause(folder)
    begins = ["run", *arguments, "--out", str(path)]
    command = ["resume", str(path)] if folder.prepared_file.is_file() else begins
    log = path.with_suffix(".log")
    with folder_errors(path), log.open("wb") as output:
        # Use a process for each trial, because Keras keeps memory and compiled programs of a model for as long as its
        # process lives.
        process = start_child("vcdl", *command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            is_pruned = _watch_trial(trial, folder, process)
        except BaseException:
            process.terminate()  # it pauses, as by Ctrl-C
            process.wait()
            raise
    report = _report(folder)
    if is_pruned:
        study.tell(trial, state=TrialState.PRUNED)
        return f"pruned after epoch {report.epochs[-1].epoch}"
    if process.returncode or report.best_epoch is None:
        # Somebody paused that process, so the sweep also pauses, instead of counting a failure.
        if process.returncode == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        study.tell(trial, state=TrialState.FAIL)
        raise RunFolderError(
            f"trial {trial.number} failed: {display_path(log)} says why; the same command continues without it"
        )
    study.tell(trial, report.best_epoch.mean)
    return f"{report.monitor.name} {report.best_epoch.mean:.4f} in epoch {report.best_epoch.epoch}"


def _watch_trial(trial: "optuna.Trial", folder: "RunFolder", process: "subprocess.Popen[bytes]") -> bool:
    """Report each epoch of a trial to Optuna until its process ends, and pause the process if Optuna prunes the trial.

    Returns:
        Whether the trial was pruned before it finished.
    """
    from vcdl.run.control import ask_to_pause

    told = 0
    is_pruned = False
    while process.poll() is None:
        time.sleep(_LOOK_S)
        for epoch in _report(folder).epochs:
            if epoch.epoch > told:
                trial.report(epoch.mean, told := epoch.epoch)
        if told and (is_pruned or trial.should_prune()):
            is_pruned = ask_to_pause(folder) or is_pruned  # repeat it, because the process may have checked too early
    return is_pruned and process.returncode == ExitCode.INTERRUPTED


def _report(folder: "RunFolder") -> Any:
    from vcdl.report.measures import Report
    from vcdl.run.reading import read_report

    return read_report(folder) if folder.journal_file.is_file() else Report()


@click.command("sweep", epilog=_EXAMPLES)
@job_file_argument
@click.option("--over", metavar="KEY=VALUES", multiple=True, required=True, help="LOW..HIGH or A,B,C; repeatable.")
@click.option("--trials", type=click.IntRange(1), default=20, show_default=True, help="Trials in all.")
@set_option
@click.option("--server", metavar="NAME", help="Train the trials as jobs of a service of `vcdl login`.")
def command(
    job_file: Path, over: tuple[str, ...], trials: int, overrides: tuple[str, ...], server: str | None
) -> ExitCode:
    """Search the best settings of a job by many runs."""
    return sweep(job_file, over, trials, overrides, server)
