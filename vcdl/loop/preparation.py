"""Prepare a job's run: make its shards, held-out data, model and version 0.

`prepared.json` is written last. If the process is killed before that, the next one prepares the run again, and reuses
finished shards.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from vcdl.errors import folder_error
from vcdl.job import Job
from vcdl.job.lr_schedule import USUAL_BOOST, RateTrial
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver
from vcdl.models.footprint import footprint_of
from vcdl.run.export import start_of
from vcdl.run.finding import display_path
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.run import Run
from vcdl.run.store_claim import new_key, requested_settings, store_address
from vcdl.stores.open import check_usable, load_client_libraries
from vcdl.wire.layout import Vector

if TYPE_CHECKING:
    from vcdl.data.samples import Samples
    from vcdl.models.fitted import Fitted

_TOLD_PERCENT = 5
"""Percent between two progress reports while the data is cut into shards: a user sees twenty lines at most."""


def _any_room(_: float) -> None:
    """Check nothing: the default of `check_room`."""


def prepare(folder: RunFolder, job: Job, observer: RunObserver, check_room: Callable[[float], None] = _any_room) -> Run:
    """Create the files, store and journal that a job needs before its first subtask, or open them if they exist.

    Reading the data, building the model and cutting shards may take long.

    Args:
        folder: The run's folder.
        job: The job.
        observer: Its `phase` is called with the progress.
        check_room: Called repeatedly with the fraction of the data that is cut into shards, and with 1 when all else is
            ready. It may stop the preparation by raising.

    Raises:
        DataError, ModelError, JobError, RunFolderError, StoreError: The job cannot be prepared.
    """
    # The file is written last, so what it describes is complete.
    if folder.prepared_file.exists():
        return Run.open(folder)
    load_client_libraries()
    from vcdl.checks import trained_norm
    from vcdl.client.trainer import Trainer
    from vcdl.data import ensure_files, read_samples
    from vcdl.models.rate_trial import find_boost, trial_lengths
    from vcdl.run.own_statistics import leave_samples
    from vcdl.trust.own_step import first_step
    from vcdl.wire.frozen import write_frozen

    # Connect before the data is read: a wrong password should be reported after a second and not after an hour of
    # cutting.
    check_usable(requested_settings(job, folder))
    fit = _fit_data_and_model(job, observer)
    dataset, model, normalisation = fit.dataset, fit.model, fit.normalisation
    trainer = Trainer(model.json, fit.training, model.frozen)
    # The layout of everything that is exchanged: the variables that training changes, followed by the optimizer's
    # moments (decisions 015 and 031).
    layout, vector = trainer.layout, trainer.with_moments(model.weights)
    cutting = f"cutting {len(dataset.x_train)} samples into {job.data.shards} shards"
    observer.phase(cutting)
    try:
        shards = ensure_files(folder, dataset, job.data, job.seed, _progress_callback(cutting, observer, check_room))
        statistics_samples = leave_samples(folder, layout, shards, job.seed)
        folder.model_file.write_text(model.json)
        frozen = write_frozen(folder.frozen_file, model.frozen) if model.frozen.size else None
        shard_samples, footprint = tuple(shard.samples for shard in shards), footprint_of(trainer.model)
        boost, trial = USUAL_BOOST, RateTrial.NONE
        if lengths := trial_lengths(job.training, shard_samples, job.stop.epochs, footprint):
            observer.phase("trying learning rates")
            files = [shard.path for shard in shards]
            boost, trial = find_boost(trainer, job.training, vector, files, normalisation, job.seed, lengths)

        def read_held_out() -> "Samples":
            observer.phase("measuring a step of training")
            return read_samples(folder.validation_file, normalisation)

        rate = job.training.subtask_rate((), 0, boost).highest
        # Held-out samples are passed as a function: only jobs for strangers need them read and normalised.
        own = first_step(job, trainer, vector, max(shard_samples), read_held_out, rate)
        settings, store_key = requested_settings(job, folder), new_key(job.name)
        if not settings.is_folder or job.keeps_uploads or own.lengths:
            # The folder is the switch: a server keeps uploads only if the folder exists, and recovery relies on them.
            folder.kept_uploads.mkdir(exist_ok=True)
        prepared = Prepared(
            shard_samples=shard_samples,
            has_test=dataset.x_test is not None,
            normalisation=normalisation,
            layout=layout,
            initial_norm=trained_norm(own.begin, layout),
            store_key=store_key,
            footprint=footprint,
            own_step=own.lengths,
            short_job_boost=boost,
            rate_trial=trial,
            frozen=frozen,
            store=store_address(settings, folder),
            classes=dataset.classes.names if dataset.classes else (),
            classes_by_output=dataset.class_names_by_output,
            statistics_samples=statistics_samples,
        )
        run = Run(folder, job, prepared)
        # Version 0 and the journal must exist before `prepared.json`: a process that finds that file may open both.
        _make_store_and_journal(run, own.begin)
        check_room(1.0)
        prepared.write(folder)
    except OSError as error:
        raise folder_error(folder.path, error) from error
    return run


def _fit_data_and_model(job: Job, observer: RunObserver) -> "Fitted":
    """Load the job's data set and model, and fit them to each other.

    If the job has its own code, the model is also tried out.
    """
    from vcdl.client.trainer import Trainer
    from vcdl.data import load_dataset
    from vcdl.models.fitted import build_fitted
    from vcdl.models.model_classes import load_data_with_model_classes
    from vcdl.models.trial import try_job

    observer.phase(f"reading the data set {job.data.dataset or display_path(job.data.file)}")
    dataset = load_data_with_model_classes(job, partial(load_dataset, seed=job.seed))
    observer.phase("building the model")
    fit = build_fitted(job, dataset, start_of(job))
    if job.model.code is not None:
        try_job(job, fit, Trainer(fit.model.json, fit.training, fit.model.frozen))
    return fit


def _make_store_and_journal(run: Run, weights: Vector) -> None:
    """Create the run's store with version 0, the snapshot of version 0, and an empty journal."""
    run.folder.store_claim_file.unlink(missing_ok=True)  # left by a preparation that was killed
    store = run.store()
    # The store that a killed preparation created has another `store_key`, because the key is drawn again. Its weights
    # are left behind, and cannot be mixed with these.
    store.create(weights)
    store.close()
    run.snapshots(store).keep(0, weights, durable=True)
    Journal.at(run.folder.journal_file).close()  # from here on, a run without one has lost it


def _progress_callback(
    what: str, observer: RunObserver, check_room: Callable[[float], None]
) -> Callable[[float], None]:
    """Return a function to call with the fraction done; it reports it and checks for room every few percent.

    Args:
        what: The text of the report, to which the percentage is added.
        observer: Receives the reports.
        check_room: See `prepare`.
    """
    told = 0

    def progress(fraction: float) -> None:
        nonlocal told
        if (percent := int(100 * fraction)) >= told + _TOLD_PERCENT:
            observer.phase(f"{what}: {percent} %")
            check_room(fraction)
            told = percent

    return progress
