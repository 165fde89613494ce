"""`vcdl check`: check job file, data, model, and loss against labels; trains nothing and writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import job_file_argument, json_option, say, say_json, set_option
from vcdl.errors import ExitCode, VcdlError

if TYPE_CHECKING:
    from vcdl.planner.pace import Pace

_EXAMPLES = """\b
Examples:
  vcdl check job.yaml
  vcdl check job.yaml --set data.shards=100
  vcdl check job.yaml --json"""


def check(job_file: Path, overrides: Sequence[str] = (), as_json: bool = False) -> ExitCode:
    """Check job file, data, model and store, and try the first training steps, as a run would; no run is created.

    With `as_json` a failed check prints its error as JSON, too, before it is raised.

    Raises:
        JobError, DataError, ModelError, StoreError: The job cannot run.
    """
    from vcdl.report.wording import group_digits, plural, size
    from vcdl.run.checking import check_job
    from vcdl.run.describe import model_ends

    try:
        checked = check_job(job_file, overrides)
    except VcdlError as error:
        if as_json:
            # Print JSON for a failed check, too, since programs expect it on stdout. Raise the error again for the exit
            # code and stderr.
            say_json({"ok": False, "error": str(error)})
        raise
    if as_json:
        return say_json({"ok": True, **asdict(checked)})
    samples = (checked.train_samples, checked.validation_samples, checked.test_samples)
    train, validation, test = map(group_digits, samples)
    click.echo(f"job    {checked.job}: {job_file} is in order")
    click.echo(f"data   {train} samples train in {plural(checked.shards, 'shard')}, {validation} validate, {test} test")
    takes, gives = model_ends(checked.input_shape, checked.outputs)
    parameters = group_digits(checked.parameters)
    click.echo(
        f"model  {parameters} parameters, takes {takes}, ends in {gives}; its loss fits the labels, and "
        f"{checked.optimizer} trains it"
    )
    say(f"pace   {_pace_words(pace)}" for pace in checked.paces)
    click.echo(f"rate   {_rate_words(checked.peak_rate, checked.rate_trials)}")
    click.echo(f"memory about {size(checked.memory_bytes)} for vcdl run on this machine")
    click.echo(f"trust  {_trust_words(checked.trust)}")
    if checked.kept_bytes:
        click.echo(f"disk   retention > uploads: all keeps at most {size(checked.kept_bytes)} of uploads and weights")
    elif checked.rollback_bytes:
        click.echo(
            f"disk   about {size(checked.rollback_bytes)} if strangers train it: the uploads and weights of three "
            "epochs, for a rollback; more until an epoch ends well"
        )
    return say(f"note   {note}" for note in checked.notes)


def _pace_words(pace: "Pace") -> str:
    from vcdl.report.wording import group_digits, plural

    words = f"{plural(pace.slots, 'subtask')} at a time"
    if pace.slots == 1:
        nearly = "nearly " if pace.shards == 1 else ""  # two epochs of a rolling job may be open at once
        return f"{words}: {nearly}the same as training on one machine"
    usual, most = pace.lost_points
    cures = " and ".join(f"{key}: {value}" for key, value in pace.cures.items())
    return (
        f"{words}, {group_digits(pace.rounds)} in each slot: expect {usual:.1f} points of accuracy, or of explained "
        f"variance, less than on one machine, and at most {most:.1f} in nine of ten jobs"
        + (f"; to lose less, set {cures}" if cures else "")
    )


def _rate_words(peak: float, trials: Sequence[int] | None) -> str:
    if trials is None:
        return f"{peak:.3g}, as the job file says"
    if not trials:
        return (
            f"{peak:.3g}, or up to 3 times as much in a short job; trying higher rates would take too much of this one"
        )
    steps = " to ".join(str(length) for length in sorted({trials[0], trials[-1]}))
    return (
        f"{peak:.3g}, or up to 16 times as much in a short job: five rates are first tried for {steps} steps, and "
        "`vcdl status` shows the result. If it says that nothing was learned, set training > learning_rate: such jobs "
        "ended up to 10 points lower"
    )


def _trust_words(trust: Mapping[str, str]) -> str:
    words = sorted(set(trust.values()))
    if len(words) == 1:
        return f"{words[0]}, as the job file says"
    commands = {word: [f"vcdl {command}" for command in trust if trust[command] == word] for word in words}
    each = ", ".join(f"{word} for {' and '.join(commands[word])}" for word in words)
    return f"{each}; the key trust of the job file can choose one for all"


@click.command("check", epilog=_EXAMPLES)
@job_file_argument
@set_option
@json_option
def command(job_file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Check job file, data and model; trains nothing."""
    return check(job_file, overrides, as_json)
