"""`vcdl check`: check job file, data, model, and loss against labels; trains nothing and writes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from vcdl.commands._options import json_option, set_option
from vcdl.errors import DataError, ExitCode, VcdlError

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
    if checked.kept_bytes:
        click.echo(f"disk   retention > uploads: all keeps at most {size(checked.kept_bytes)} of uploads and weights")
    for note in checked.notes:
        click.echo(f"note   {note}")
    return ExitCode.OK


def check_job(job_file: Path, overrides: Sequence[str] = ()) -> Checked:
    """Make the checks that a run makes before its first subtask. Raises JobError, DataError, ModelError, StoreError."""
    from vcdl.data import load_dataset, normalisation_of
    from vcdl.job import load_job
    from vcdl.run.folder import RunFolder
    from vcdl.run.store_address import asked_settings
    from vcdl.stores.open import see_that_it_answers

    job = load_job(job_file, overrides)
    see_that_it_answers(asked_settings(job, RunFolder(Path(job.name))))
    dataset = load_dataset(job.data, job.seed)
    if len(dataset.x_train) < job.data.shards:
        raise DataError(
            f"{len(dataset.x_train)} training samples are too few for {job.data.shards} shards: "
            f"set data > shards to at most {len(dataset.x_train)}"
        )
    import numpy as np

    from vcdl.client.model import load_model
    from vcdl.models import build_model_json, check_model

    model_json = build_model_json(job.model, dataset.input_shape, dataset.outputs, job.data.task)
    labels = [y for y in (dataset.y_train, dataset.y_val, dataset.y_test) if y is not None]
    training = job.training.to_wire(normalisation_of(dataset, job.data))
    check_model(model_json, training, dataset.input_shape, np.concatenate(labels))
    parameters = int(load_model(model_json).count_params())
    return Checked(
        job=job.name,
        train_samples=len(dataset.x_train),
        validation_samples=len(dataset.x_val),
        test_samples=0 if dataset.x_test is None else len(dataset.x_test),
        shards=job.data.shards,
        input_shape=dataset.input_shape,
        outputs=dataset.outputs,
        parameters=parameters,
        notes=tuple(_notes(len(dataset.x_train) // job.data.shards, job.training.batch_size)),
        kept_bytes=_UPLOAD_AND_BASE * job.subtasks * _WEIGHT_BYTES * parameters if job.keeps_uploads else 0,
    )


def _notes(shard_samples: int, batch_size: int) -> Iterator[str]:
    if shard_samples < batch_size:
        yield (
            f"a shard has {shard_samples} samples and training > batch_size is {batch_size}: "
            "a subtask is a single step; set data > shards lower"
        )


@click.command("check", epilog=_EXAMPLES)
@click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path))
@set_option
@json_option
def command(job_file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Check job file, data and model; trains nothing."""
    return check(job_file, overrides, as_json)
