"""A prepared job in its folder, with every object that follows from the two: store, journal, model, checks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from vcdl.checks import UploadCheck
from vcdl.checks.upload import as_given
from vcdl.errors import RunFolderError, WeightsFileError
from vcdl.job import Job
from vcdl.job.lr_schedule import SubtaskRate
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import RolledBack, StoreRestored
from vcdl.journal.journal import Journal
from vcdl.rules.base import Rule
from vcdl.rules.state import RuleState
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import open_frozen
from vcdl.run.kept_weights import Bases, Downloads, Snapshots
from vcdl.run.kind import RunKind
from vcdl.run.prepared import Prepared
from vcdl.run.store_claim import OWN_FOLDER, claim_key, requested_settings, settings_at
from vcdl.stores import Boundary, WeightStore
from vcdl.stores.base import RESTORED, Expected
from vcdl.stores.open import load_client_libraries, open_store
from vcdl.stores.settings import StoreSettings
from vcdl.wire.frozen import read_frozen
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.workunit import Training, Transport, WorkunitName


@dataclass(frozen=True)
class Run:
    """A job that is prepared for training, with everything that follows from its folder.

    Store and journal are opened by `store` and `journal`; the caller closes them.
    """

    folder: RunFolder
    job: Job
    prepared: Prepared

    @classmethod
    def open(cls, folder: RunFolder) -> Self:
        """Read the job and the prepared facts of the run in a folder.

        Raises:
            RunFolderError: The run is not prepared.
            JobError: Its job file is damaged.
        """
        load_client_libraries()
        return cls(folder, open_frozen(folder), Prepared.read(folder))

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def kind(self) -> RunKind:
        """The kind of the run.

        Raises:
            RunFolderError: The kind is unknown.
        """
        return self.folder.kind

    @property
    def rule(self) -> Rule:
        """The rule that applies uploads to the shared weights."""
        return self.job.update

    @cached_property
    def state(self) -> RuleState:
        """The numbers that the store keeps with the weights: the rule's, and step lengths where these are bounded."""
        # Take the step lengths from the preparation and not from the job file, because the size of a store's vector can
        # never change.
        return replace(self.rule.state, first_row=self.prepared.own_step)

    @property
    def draw_secret(self) -> str:
        """The secret on which random draws depend. A simulation draws the same each time."""
        # A client that could predict the draws would be honest only when it is checked. A simulation has no hostile
        # client, and must give the same figures for the same seed.
        return self.prepared.store_key if self.kind.has_wall_clock else str(self.job.seed)

    @property
    def layout(self) -> Layout:
        """The place of each variable of the model in the weights."""
        return self.prepared.layout

    def frozen_weights(self) -> Vector:
        """Return the weights that no training changes, shape (m,).

        Raises:
            RunFolderError: The file is damaged.
            FileUnavailable: It cannot be read now.
        """
        path = self.folder.frozen_file
        try:
            return read_frozen(path, self.prepared.frozen)
        except WeightsFileError as error:
            raise RunFolderError(f"{path}: {error}; put a copy back, or start another run with --out") from error

    def load_model(self) -> Any:
        """Return the run's Keras model with only its frozen weights set.

        Raises:
            RunFolderError, ModelError, FileUnavailable: It cannot be built.
        """
        from vcdl.client.model import load_model

        self.permit_code()
        return load_model(self.folder.read_model_json(), self.frozen_weights())

    def permit_code(self) -> None:
        """Permit this process to run the job's own code, if the job and the kind of the run allow it.

        Do nothing otherwise. The permission lasts until the process ends.
        """
        from vcdl.client import own_code

        if self.job.may_run_code and self.kind.runs_code:
            own_code.permit()

    @property
    def subtask_rate(self) -> SubtaskRate:
        """The schedule of the subtasks' learning rate."""
        prepared, job = self.prepared, self.job
        return job.training.subtask_rate(prepared.shard_samples, job.stop.epochs, prepared.short_job_boost)

    @property
    def transport(self) -> Transport:
        """The codecs that encode weights for transport."""
        return self.job.transport.to_wire()

    @property
    def training(self) -> Training:
        """The settings of training at the job's peak rate."""
        return self.training_at(1.0)

    def training_at(self, rate: float) -> Training:
        """Return the settings of a subtask's training, with `rate` times the job's peak learning rate."""
        return self.job.training_on(self.prepared.normalisation, rate)

    @property
    def shard_files(self) -> tuple[Path, ...]:
        """The files of the shards, by number."""
        return tuple(self.folder.shard(number) for number in range(self.job.data.shards))

    def store_settings(self) -> StoreSettings:
        """Return the settings of the run's store, after checking that it is the one that the run was prepared with.

        Raises:
            StoreError: The job file or the environment now names another store.
        """
        return settings_at(requested_settings(self.job, self.folder), self.prepared.store, self.job, self.folder)

    def store(self, journal: Journal | None = None) -> WeightStore:
        """Return the store of the run's weights, which connects at its first use.

        For a store outside the run's folder, this writes the folder's claim on the weights (vcdl.run.store_claim).

        Args:
            journal: A journal that the same thread opened. With it, each use of a store that is older than the journal
                raises StoreLost. None: the store is not compared.

        Raises:
            StoreError: The store cannot be used.
            RunFolderError: The folder is a copy of another run's.
        """
        settings, key = self.store_settings(), self.prepared.store_key
        if self.prepared.store != OWN_FOLDER:
            # No uploads are kept for weights in another folder, so a copy of the run could not rebuild them (decision
            # 027).
            may_restore = not settings.is_folder
            key = claim_key(self.folder, self.prepared, may_restore=may_restore)
        store = open_store(settings, key, self.layout.size, self.state)
        if journal is not None:
            # This is evaluated before each use of the store, because the journal may have grown.
            store.expected = partial(read_expected, journal)
            if self.folder.kept_uploads.is_dir() and not store.overwrites:
                # An eventual store may assign a number twice by design. In other stores, if the next version already
                # has a snapshot, the store was replaced by an older copy (decision 123).
                store.is_taken = lambda version: self.folder.snapshot(version).exists()
        return store

    def journal(self, clock: Callable[[], float] | None = None) -> Journal:
        """Open the run's event log for writing.

        Args:
            clock: A simulation's clock; None for the wall clock.

        Raises:
            JournalError: The journal cannot be opened, or was deleted.
        """
        return Journal.existing(self.folder.journal_file, clock)

    def snapshots(self, store: WeightStore) -> Snapshots:
        """Return the object that writes and checks snapshots of a store of this run."""
        return Snapshots(self.folder, store, self.name, self.layout)

    def downloads(self) -> Downloads:
        """Return the files of weights that clients download."""
        return Downloads(self.folder, self.layout, self.transport)

    def upload_check(self, journal: Journal | None = None, *, is_over: bool = False) -> UploadCheck:
        """Return the check that an upload must pass.

        Args:
            journal: The journal that lists the newer versions that clients may have started from, or None if there are
                none.
            is_over: Whether the subtask is applied, so that the weights that the upload started from may be gone.
        """
        return UploadCheck(
            job=self.name,
            layout=self.layout,
            shard_samples=self.prepared.shard_samples,
            local_epochs=self.job.training.local_epochs,
            initial_norm=self.prepared.initial_norm,
            transport=self.transport,
            # Without a journal, as in a simulation or a test, clients start from the version of their workunit.
            is_base=as_given if journal is None else Bases(journal, self.folder, self.layout.size, not is_over),
        )

    def boundary(self, snapshots: Snapshots) -> Boundary | None:
        """Return which versions need a snapshot before the store applies further updates.

        None if only the ends of epochs are evaluated.
        """
        every = self.job.validate_every
        return None if every == EVERY_EPOCH else Boundary(every, snapshots.keep, snapshots.has)


def read_expected(journal: Journal) -> Expected:
    """Return the newest record that the store must have according to the journal; a store without it is too old.

    Raises:
        JournalError: The journal cannot be read.
    """
    # Both queries use the index, because this is called for each fold.
    rolled, restored = (max(_versions(journal, kind), default=0) for kind in (RolledBack, StoreRestored))
    update = journal.newest_update()
    # A restored store has no records of the updates before the restore, only one of the restore.
    if update is None or update.version < restored:
        return Expected(max(rolled, restored), RESTORED if restored else "", restored)
    return Expected(max(update.version, rolled), WorkunitName.parse(update.workunit).subtask, update.version)


def _versions(journal: Journal, kind: type[RolledBack] | type[StoreRestored]) -> Iterator[int]:
    """Yield the versions that events of this kind have made."""
    for row in journal.events_with_key_prefix(kind.kind):
        if isinstance(row.event, kind):
            yield row.event.version
