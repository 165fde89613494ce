"""What is made once for a job before its first subtask: shards, held-out data, the model and version 0 of its weights.

`prepared.json` is written last: a run that was killed before it is prepared anew, and finds the shards it had made.
"""

import json
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from vcdl.errors import RunFolderError, folder_error
from vcdl.models.footprint import Footprint, footprint_of
from vcdl.report.onlooker import Onlooker
from vcdl.run.folder import RunFolder
from vcdl.run.snapshots import Snapshots
from vcdl.run.store_address import asked_settings, held_to, store_address
from vcdl.stores.open import open_store, see_that_it_answers
from vcdl.stores.settings import Service, StoreSettings
from vcdl.weights import Layout, Variable
from vcdl.workunit import Normalisation, Training

if TYPE_CHECKING:
    from vcdl.job import Job

_FORMAT = 1


@dataclass(frozen=True)
class Prepared:
    """Facts of a prepared job that are not in its job file."""

    shard_samples: tuple[int, ...]
    """By number of the shard."""
    has_test: bool
    normalisation: Normalisation
    layout: Layout
    initial_norm: float
    """‖W‖₂ of version 0."""
    store_key: str
    """What the weights are kept under: another one for each run, so that two runs of a job never share weights."""
    footprint: Footprint
    store: str | None = None
    """Where they are kept, without a login (`store_address`); None in runs of earlier versions."""

    def training(self, job: "Job") -> Training:
        """What clients are told about training."""
        return training_of(job, self.normalisation)

    def write(self, folder: RunFolder) -> None:
        """Raises OSError."""
        temporary = folder.prepared_file.with_suffix(".tmp")
        temporary.write_text(json.dumps({"format": _FORMAT, **asdict(self)}))
        temporary.replace(folder.prepared_file)

    @classmethod
    def read(cls, folder: RunFolder) -> Self:
        """Raises RunFolderError."""
        try:
            raw: dict[str, Any] = json.loads(folder.prepared_file.read_text())
            norm = raw["normalisation"]
            variables = (Variable(v["path"], tuple(v["shape"]), v["offset"]) for v in raw["layout"]["variables"])
            return cls(
                shard_samples=tuple(raw["shard_samples"]),
                has_test=raw["has_test"],
                normalisation=Normalisation(tuple(norm["scale"]), tuple(norm["offset"])),
                layout=Layout(tuple(variables)),
                initial_norm=raw["initial_norm"],
                store_key=raw["store_key"],
                footprint=Footprint(**raw["footprint"]),
                store=raw.get("store"),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{folder.prepared_file} cannot be read ({error!r}): the run cannot go on; begin it anew with --out"
            ) from error


def store_settings(job: "Job", folder: RunFolder) -> StoreSettings:
    """The store that the run is to have, or has since it is prepared.

    Raises StoreError when another one is named now, RunFolderError.
    """
    settings = asked_settings(job, folder)
    kept = Prepared.read(folder).store if folder.prepared_file.exists() else None
    return settings if kept is None else held_to(settings, kept, job, folder)


def training_of(job: "Job", normalisation: Normalisation) -> Training:
    """The job's training settings, as clients get them; the learning rate at its peak."""
    settings = job.training
    return Training(
        optimizer=settings.optimizer,
        learning_rate=settings.peak_rate,
        batch_size=settings.batch_size,
        local_epochs=settings.local_epochs,
        loss=settings.loss,
        metrics=settings.metrics,
        normalisation=normalisation,
        moments=settings.moments,
    )


def prepare(folder: RunFolder, job: "Job", onlooker: Onlooker) -> Prepared:
    """Make everything a job needs before its first subtask, unless it is there.

    Raises DataError, ModelError, JobError, RunFolderError, StoreError.
    """
    if folder.prepared_file.exists():
        return Prepared.read(folder)
    import numpy as np

    from vcdl.checks import trained_norm
    from vcdl.client.trainer import Trainer
    from vcdl.data import ensure_shards, load_dataset, normalisation_of, write_split
    from vcdl.models import build_model_json, check_model, initial_weights
    from vcdl.rules.of_job import rule_of

    see_that_it_answers(asked_settings(job, folder))
    onlooker.phase(f"reading the data set {job.data.dataset or job.data.npz}")
    dataset = load_dataset(job.data, job.seed)
    normalisation = normalisation_of(dataset, job.data)
    onlooker.phase("building the model")
    model_json = build_model_json(job.model, dataset.input_shape, dataset.outputs, job.data.task)
    labels = [y for y in (dataset.y_train, dataset.y_val, dataset.y_test) if y is not None]
    training = training_of(job, normalisation)
    check_model(model_json, training, dataset.input_shape, np.concatenate(labels))
    trainer = Trainer(model_json, training)
    layout = trainer.layout
    vector = trainer.with_moments(initial_weights(model_json, job.seed))
    onlooker.phase(f"cutting {len(dataset.x_train)} samples into {job.data.shards} shards")
    try:
        shards = ensure_shards(folder.shards, dataset, job.data, job.seed)
        write_split(folder.validation_file, dataset.x_val, dataset.y_val)
        if dataset.x_test is not None and dataset.y_test is not None:
            write_split(folder.test_file, dataset.x_test, dataset.y_test)
        folder.model_file.write_text(model_json)
        settings, store_key = asked_settings(job, folder), f"{job.name}-{secrets.token_hex(4)}"
        if settings.service != Service.FILE or job.keeps_uploads:
            folder.kept_uploads.mkdir(exist_ok=True)
        store = open_store(settings, store_key, layout.size, rule_of(job).state)
        store.create(vector)
        store.close()
        Snapshots(folder, store, job.name, layout.fingerprint).keep(0, vector, durable=True)
        prepared = Prepared(
            shard_samples=tuple(shard.samples for shard in shards),
            has_test=dataset.x_test is not None,
            normalisation=normalisation,
            layout=layout,
            initial_norm=trained_norm(vector, layout),
            store_key=store_key,
            footprint=footprint_of(trainer.model),
            store=store_address(settings, folder),
        )
        prepared.write(folder)
    except OSError as error:
        raise folder_error(folder.path, error) from error
    return prepared
