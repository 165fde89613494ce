"""`vcdl check`: check job file, data, model, and loss against labels; trains nothing and writes nothing."""

import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import json_option, set_option
from vcdl.errors import ExitCode, VcdlError

if TYPE_CHECKING:
    from vcdl.job import Job
    from vcdl.run.host import Host

_EXAMPLES = """\b
Examples:
  vcdl check job.yaml
  vcdl check job.yaml --set data.shards=100
  vcdl check job.yaml --json"""

_WEIGHT_BYTES = 4
_UPLOAD_AND_BASE = 2


@dataclass(frozen=True)
class Checked:
    """The facts about a job in order."""

    job: str
    train_samples: int
    validation_samples: int
    test_samples: int
    shards: int
    input_shape: tuple[int, ...]
    outputs: int
    """Classes, or numbers to predict."""
    parameters: int
    kept_bytes: int
    """Upper bound on the uploads and weights that `retention > uploads: all` keeps; 0 without it."""
    trust: Mapping[str, str]
    """Whose machines train it, by command: the job file's word, or what the command makes of `auto`."""
    notes: tuple[str, ...]
    """Warnings: the job can run, but probably not as intended."""


def check(job_file: Path, overrides: Sequence[str] = (), as_json: bool = False) -> ExitCode:
    """Check everything that a run needs. Raises JobError, DataError, ModelError, StoreError."""
    from vcdl.report.summary import as_json as json_text
    from vcdl.report.wording import grouped, plural, size

    try:
        checked = check_job(job_file, overrides)
    except VcdlError as error:
        if as_json:
            click.echo(json_text({"ok": False, "error": str(error)}), nl=False)
        raise
    if as_json:
        click.echo(json_text({"ok": True, **asdict(checked)}), nl=False)
        return ExitCode.OK
    samples = (checked.train_samples, checked.validation_samples, checked.test_samples)
    train, validation, test = map(grouped, samples)
    click.echo(f"job    {checked.job}: {job_file} is in order")
    click.echo(f"data   {train} samples train in {plural(checked.shards, 'shard')}, {validation} validate, {test} test")
    click.echo(
        f"model  {grouped(checked.parameters)} parameters, takes samples of shape {checked.input_shape}, "
        f"ends in {plural(checked.outputs, 'output')}; its loss fits the labels"
    )
    click.echo(f"trust  {_trust_words(checked.trust)}")
    if checked.kept_bytes:
        click.echo(f"disk   retention > uploads: all keeps at most {size(checked.kept_bytes)} of uploads and weights")
    for note in checked.notes:
        click.echo(f"note   {note}")
    return ExitCode.OK


def check_job(job_file: Path, overrides: Sequence[str] = ()) -> Checked:
    """Make the checks that a run makes before its first subtask. Raises JobError, DataError, ModelError, StoreError."""
    from vcdl.data import load_dataset
    from vcdl.job import load_job
    from vcdl.run.folder import RunFolder
    from vcdl.run.host import HOSTS
    from vcdl.run.store_address import asked_settings
    from vcdl.stores.exposure import exposures
    from vcdl.stores.open import see_that_it_serves

    job = load_job(job_file, overrides)
    store = asked_settings(job, RunFolder(Path(job.name)))
    see_that_it_serves(store)
    dataset = load_dataset(job.data, job.seed)
    from vcdl.client.model import load_model
    from vcdl.models import fitted
    from vcdl.run.start import start_of
    from vcdl.wire.weights import Layout

    model = load_model(fitted(job, dataset, start_of(job)).model.json)
    trained = Layout.of(model).size
    return Checked(
        job=job.name,
        train_samples=len(dataset.x_train),
        validation_samples=len(dataset.x_val),
        test_samples=0 if dataset.x_test is None else len(dataset.x_test),
        shards=job.data.shards,
        input_shape=dataset.input_shape,
        outputs=dataset.outputs,
        parameters=int(model.count_params()),
        trust={host.command: _trust(job, host) for host in HOSTS.values()},
        notes=(
            *_notes(len(dataset.x_train) // job.data.shards, job.training.batch_size),
            *(f"{exposure.what}; {exposure.cure}" for exposure in exposures(store)),
            *_shown_passwords(job_file, job, overrides),
        ),
        kept_bytes=_UPLOAD_AND_BASE * job.subtasks * _WEIGHT_BYTES * trained if job.keeps_uploads else 0,
    )


def _notes(shard_samples: int, batch_size: int) -> Iterator[str]:
    if shard_samples < batch_size:
        yield (
            f"a shard has {shard_samples} samples and training > batch_size is {batch_size}: "
            "a subtask is a single step; set data > shards lower"
        )


def _shown_passwords(job_file: Path, job: "Job", overrides: Sequence[str]) -> Iterator[str]:
    from vcdl.passwords import split_password
    from vcdl.stores.settings import PASSWORD_VARIABLE

    _, password = split_password(job.store.url or "")
    if not password:
        return
    cure = f"take it out of the URL and set {PASSWORD_VARIABLE}"
    if any(password in setting for setting in overrides):
        yield f"the store's password is in --set, which every user of this machine sees while vcdl runs (ps); {cure}"
    elif job_file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield f"{job_file} has the store's password in it, and other users of this machine may read it; {cure}"


def _trust(job: "Job", host: "Host") -> str:
    return "strangers" if job.trusting(host.trust).is_for_strangers else "own"


def _trust_words(trust: Mapping[str, str]) -> str:
    words = sorted(set(trust.values()))
    if len(words) == 1:
        return f"{words[0]}, as the job file says"
    commands = {word: [f"vcdl {command}" for command in trust if trust[command] == word] for word in words}
    each = ", ".join(f"{word} for {' and '.join(commands[word])}" for word in words)
    return f"{each}: the job file leaves it to the command (trust: auto)"


@click.command("check", epilog=_EXAMPLES)
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
@set_option
@json_option
def command(job_file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Check job file, data and model; trains nothing."""
    return check(job_file, overrides, as_json)
