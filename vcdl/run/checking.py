"""Check a job without starting it, as a run does before its first subtask. Nothing is written."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vcdl.client.batches import steps_of
from vcdl.client.memory import available_memory_bytes
from vcdl.client.unneeded import unneeded_hidden
from vcdl.errors import split_password
from vcdl.job import SMALL_FLEET, Job, load_job
from vcdl.job.training import ACCUMULATION, TrainingSettings
from vcdl.planner.pace import Pace
from vcdl.report.wording import plural, size
from vcdl.run.folder import RunFolder
from vcdl.run.kind import usable_kinds
from vcdl.run.store_claim import requested_settings
from vcdl.stores.exposure import exposures
from vcdl.stores.open import check_usable
from vcdl.stores.settings import PASSWORD_VARIABLE
from vcdl.wire.inputs import InputShape, Outputs
from vcdl.wire.task import Task

if TYPE_CHECKING:
    from vcdl.data import Dataset

_WEIGHT_BYTES = 4
"""Bytes of a float32, as weights are stored."""
_DATA_COPIES = 2
"""Copies of the data in the process that loads and cuts them, so that its memory is not underestimated."""
_SHARED_BYTES = 512 << 20
"""Memory of a local run that does not grow with its workers: the process with the data, the parameter server and the
backend's shared pages. A run of digits on one worker took only 0.5 GB in all, because pages are shared."""
_EPOCHS_KEPT = 3
"""Epochs whose uploads a rollback may need while training goes well: the current one, and the previous one until its
end is evaluated. After a collapse it may need more, so this is no upper limit."""
_UNLIKE = 0.25
"""Label entropy of a shard as a fraction of that of all samples, below which late uploads are worth more damping
(decision 148), because shards of a Dirichlet cut have 0.1 to 0.2 with a concentration of 0.02, where damping helps, and
0.35 to 0.4 with 0.1, where it does not."""


@dataclass(frozen=True)
class Checked:
    """What `vcdl check` shows about a job that passed the checks."""

    job: str
    train_samples: int
    validation_samples: int
    test_samples: int
    shards: int
    """Number of shards of a run on this machine; `paces` contains those for other numbers of slots."""
    input_shape: InputShape
    outputs: Outputs
    """The model's outputs: classes, or numbers to predict."""
    parameters: int
    optimizer: str
    """The optimizer's name; the task's default if the job names none."""
    peak_rate: float
    """The job's learning rate before it is raised."""
    rate_trials: tuple[int, ...] | None
    """Step counts of the trials that may choose how far the rate is raised. Empty if the job is too small for a trial
    or its steps are too expensive; None if the job file sets the rate."""
    kept_bytes: int
    """Upper bound on the bytes of uploads and weights that `retention > uploads: all` keeps, or 0 without it."""
    rollback_bytes: int
    """Bytes of uploads and weights that a job for strangers keeps for a rollback while training goes well, or 0 for
    other jobs."""
    trust: Mapping[str, str]
    """Command → whose machines train the job (`own` or `strangers`): as the job file says, or as the command resolves
    `auto`."""
    memory_bytes: int
    """Estimated memory of `vcdl run` on this machine: its workers, the evaluator, and the process with all data."""
    paces: tuple[Pace, ...]
    """The job's pace on this machine's workers and on SMALL_FLEET slots, by ascending number of slots."""
    notes: tuple[str, ...]
    """Warnings: the job can run, but probably not as intended."""


def check_job(job_file: Path, overrides: Sequence[str] = ()) -> Checked:
    """Make the checks that a run makes before its first subtask, and return what they found.

    The data is read, the model is built, and the first steps are tried out, which runs the job's own code.

    Args:
        job_file: The job file.
        overrides: Settings that replace those of the file, each `KEY=VALUE`.

    Raises:
        JobError, DataError, ModelError, StoreError: The job cannot run.
    """
    # This comes before the imports, which take seconds, so that errors in the job file and the store are reported
    # immediately.
    job, elsewhere = load_job(job_file, overrides), load_job(job_file, overrides, SMALL_FLEET)
    store = requested_settings(job, RunFolder(Path(job.name)))
    check_usable(store)
    with unneeded_hidden():
        import keras  # noqa: F401
    from vcdl.client.model import load_model
    from vcdl.client.trainer import Trainer
    from vcdl.codecs.choose import up_encoding
    from vcdl.data import load_dataset
    from vcdl.models.fitted import build_fitted
    from vcdl.models.footprint import WORKER_BACKEND_BYTES, footprint_of
    from vcdl.models.model_classes import load_data_with_model_classes
    from vcdl.models.rate_trial import trial_lengths
    from vcdl.models.trial import try_job
    from vcdl.run.export import start_of

    dataset = load_data_with_model_classes(job, partial(load_dataset, seed=job.seed))
    fit = build_fitted(job, dataset, start_of(job))
    model = load_model(fit.model.json)
    # A client builds the same trainer, so what it refuses is refused here first.
    trainer = Trainer(fit.model.json, fit.training, fit.model.frozen)
    layout = trainer.layout
    try_job(job, fit, trainer)
    shard_bytes = dataset.sample_bytes * len(dataset.x_train) // job.data.shards
    footprint = footprint_of(trainer.model)
    training_bytes = footprint.memory_bytes(job.training.batch_size, shard_bytes, WORKER_BACKEND_BYTES)
    # Nothing is cut here: the mean size of the shards is enough to estimate how long a trial may be.
    shard_samples = [len(dataset.x_train) // job.data.shards] * job.data.shards
    trials = trial_lengths(job.training, shard_samples, job.stop.epochs, footprint)
    # One more than the workers: the evaluator also needs memory for a model and its data.
    memory_bytes = _SHARED_BYTES + (job.workers + 1) * training_bytes + _DATA_COPIES * dataset.memory_bytes
    kept_bytes = up_encoding(job.transport.to_wire(), layout).most_bytes + _WEIGHT_BYTES * layout.size
    # The other kinds of run refuse a job with its own code, however they would resolve `auto`.
    kinds = [kind for kind in usable_kinds() if kind.runs_code or job.model.code is None]
    trust = {kind.begun_by: job.trusting(kind.trust).trust.kind for kind in kinds}
    rolls_back = any(job.trusting(kind.trust).rolls_back for kind in kinds)
    # With `shards: auto` the number of shards follows the slots (decision 101), so one file is several jobs.
    cuts = {SMALL_FLEET: elsewhere, job.workers: job}
    paces = [_pace(cuts[slots], len(dataset.x_train), slots) for slots in sorted(cuts)]
    most_shards = max(job.data.shards, elsewhere.data.shards)
    return Checked(
        job=job.name,
        train_samples=len(dataset.x_train),
        validation_samples=len(dataset.x_val),
        test_samples=0 if dataset.x_test is None else len(dataset.x_test),
        shards=job.data.shards,
        input_shape=dataset.input_shape,
        outputs=dataset.outputs,
        parameters=int(model.count_params()),
        optimizer=job.training.optimizer.name,
        peak_rate=job.training.peak_rate,
        rate_trials=trials if job.training.tries_rates else None,
        trust=trust,
        paces=tuple({pace.slots: pace for pace in paces}.values()),
        notes=(
            *_worker_notes(job),
            *_sequence_notes(job.data.task),
            *_unlike_notes(job, dataset),
            *_embedding_notes(job.training.optimizer.name, fit.model.json),
            *_memory_notes(memory_bytes, available_memory_bytes()),
            # Both cuts often give the same note; show it once.
            *dict.fromkeys(
                note for cut in cuts.values() for note in _notes(len(dataset.x_train) // cut.data.shards, cut.training)
            ),
            *(f"{exposure.what}; {exposure.cure}" for exposure in exposures(store)),
            *_password_warnings(job_file, job, overrides),
        ),
        kept_bytes=job.stop.epochs * most_shards * kept_bytes if job.keeps_uploads else 0,
        memory_bytes=memory_bytes,
        rollback_bytes=min(job.stop.epochs, _EPOCHS_KEPT) * most_shards * kept_bytes if rolls_back else 0,
    )


def _pace(job: Job, samples: int, slots: int) -> Pace:
    return Pace.of(samples // job.training.batch_size, job.stop.epochs, job.data.shards, slots)


def _notes(shard_samples: int, training: TrainingSettings) -> Iterator[str]:
    if shard_samples < training.batch_size:
        yield (
            f"a shard has {shard_samples} samples and training > batch_size is {training.batch_size}: "
            "a subtask is a single step; set data > shards lower"
        )
    batches = steps_of(shard_samples, training.batch_size, training.local_epochs)
    if left := batches % training.batches_a_step:
        yield (
            f"a subtask has {batches} batches, and {ACCUMULATION} is {training.batches_a_step}: the last {left} are "
            f"not used; choose a divisor of {batches}"
        )


def _unlike_notes(job: Job, dataset: "Dataset") -> Iterator[str]:
    from vcdl.data.shards import cut_into_shards
    from vcdl.data.split import likeness

    if job.data.by is None or job.data.task != "classification" or "staleness_damping" in job.update.model_fields_set:
        return
    alike = likeness(dataset.y_train, cut_into_shards(dataset, job.data, job.seed))
    if alike < _UNLIKE:
        yield (
            f"shards cut by {job.data.by} hold few classes each (label entropy {alike:.2f} of that of all samples): "
            "set update > staleness_damping: 0.6, or cut by another column"
        )


def _sequence_notes(task: Task) -> Iterator[str]:
    if task == "sequence":
        yield (
            "a model with an output for each position of a sequence loses more accuracy than others on many slots: a "
            "Transformer over characters lost 2 points on ten slots with 8 rounds of uploads each, and 18 points on "
            "forty slots with one round"
        )


def _embedding_notes(optimizer: str, model: str) -> Iterator[str]:
    if optimizer.lower() in ("sgd", "adagrad") and '"Embedding"' in model:
        yield (
            f"{optimizer} trains an embedding: on texts and ten slots, sgd and adagrad lost 9 to 35 points of accuracy "
            "compared with their own serial training, adam none; consider adam"
        )


def _memory_notes(needed_bytes: int, free_bytes: int | None) -> Iterator[str]:
    if free_bytes is not None and needed_bytes > free_bytes:
        yield (
            f"a run here needs about {size(needed_bytes)} of memory, and {size(free_bytes)} are free: "
            "set grid > workers or training > batch_size lower"
        )


def _worker_notes(job: Job) -> Iterator[str]:
    workers, cores = job.workers, len(os.sched_getaffinity(0))
    if job.grid.workers != "auto" and workers > min(cores, job.data.shards):
        yield (
            f"grid > workers is {workers}, and this machine has {plural(cores, 'core')}, the job "
            f"{plural(job.data.shards, 'shard')}: each worker needs memory for Keras and the model, and the "
            "surplus workers stay idle"
        )


def _password_warnings(job_file: Path, job: Job, overrides: Sequence[str]) -> Iterator[str]:
    _, password = split_password(job.store.url or "")
    if not password:
        return
    cure = f"remove it from the URL and set {PASSWORD_VARIABLE}"
    # The command line is worse than a readable file: any user may see it by chance.
    if any(password in setting for setting in overrides):
        yield f"the store's password is in --set, which every user of this machine can see while vcdl runs (ps); {cure}"
    elif job_file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield f"{job_file} contains the store's password, and other users of this machine may read the file; {cure}"
