"""The folder of a run: its files, and the locks of its processes.

job.yaml        the resolved job, frozen when the run started
store_password  the password of the store that job.yaml names; only the owner may read it
host            the kind of the run (vcdl.run.kind), in one word; written before anything else
model.json      the model, as Keras JSON           frozen.h5      its frozen weights, if any
prepared.json  its layout, the shards' sizes, the normalisation
given/          the model and the arrays of `vcdl.train`, with a job file that names them
data/           shards/ (with shards.json), validation.npz, test.npz, statistics.npz
journal.db      the event log (SQLite)             store/         the shared weights
snapshots/      params_v000142.h5: weights by version, while something refers to them
                state_v000142.h5: the rule's state of that version
                reference_update.h5: the step that uploads are compared with, in jobs for strangers
downloads/      the snapshots in the encoding that clients download, if `transport` encodes or compresses them
slots/          a folder for each subtask that a worker is training
verify/         the subtask that the evaluator is retraining
own/            updates of subtasks that the evaluator trained, because every host had failed at them
uploads/        uploads that wait to be assimilated
kept/           uploads applied since the last closed epoch, if the store is a server that may lose its memory, or the
                job is for strangers; all of them with retention > uploads: all
workers.log     the workers' stderr
clients.yaml    the simulated clients, if the run is simulated
note.json       a user's note about the run, and its tags
summary.json  model.keras  curves.png  confusion_matrix.csv  confusion_matrix.png  tensorboard/
                the results, written when the job has ended
"""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from vcdl.errors import PluginError, RunFolderError, folder_errors, unreadable
from vcdl.files.atomic import atomic_write
from vcdl.files.below import Below
from vcdl.files.lock import FileLock, holder_of, locked
from vcdl.run.kind import LOCAL, RUN_KINDS, RunKind
from vcdl.wire.workunit import FROZEN_FILE

_LOCK_FILE = "run.lock"
_WAIT_S = 0.5
"""Seconds to wait for the lock, because `running_pid` holds it for microseconds, which must not prevent a run."""


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run's folder."""

    path: Path

    @classmethod
    def existing(cls, path: Path) -> Self:
        """Return the folder of an existing run.

        Raises:
            RunFolderError: The folder does not exist or contains no run.
        """
        folder = cls(path.resolve())
        if not path.exists():
            raise RunFolderError(
                f"there is no folder {path}: `vcdl status` without one shows the run that changed last"
            )
        if not folder.job_file.is_file():
            raise RunFolderError(f"{path} holds no run (it has no job.yaml): `vcdl run JOB.yaml` starts one")
        return folder

    job_file = Below("job.yaml")
    store_password_file = Below("store_password")
    """Only exists if the store's URL in the job file had a password."""
    store_claim_file = Below("store_claim.json")
    """The claim on weights that are stored elsewhere (vcdl.run.store_claim); only exists with such a store."""
    kind_file = Below("host")
    """The name of the run's kind, written before anything else."""

    @property
    def kind(self) -> RunKind:
        """The kind of the run, or LOCAL if the folder does not name one.

        Raises:
            RunFolderError: The kind is unknown.
            FileUnavailable: The file cannot be read now.
        """
        try:
            name = self.kind_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return LOCAL
        except UnicodeDecodeError as error:
            raise RunFolderError(f"{self.kind_file} is damaged ({error}): fix it, or start another run") from error
        except OSError as error:
            raise unreadable(self.kind_file, error) from error
        if name not in RUN_KINDS:
            raise RunFolderError(
                f"{self.path} is a run of the kind {name[:40]!r}, which this version of vcdl does not know: "
                f"use the version that started it; {RUN_KINDS.how_to_add}"
            )
        try:
            return RUN_KINDS[name]
        except PluginError as error:
            raise RunFolderError(f"{self.path}: {error}") from error

    given = Below("given")
    """The model and arrays that a program passed to `vcdl.train`; exists only then. A started run reads nothing in it.
    """
    model_file = Below("model.json")

    def read_model_json(self) -> str:
        """Return the model as Keras JSON.

        Raises:
            RunFolderError: The file is missing.
            FileUnavailable: It cannot be read now.
        """
        try:
            return self.model_file.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise RunFolderError(f"{self.model_file} is missing: start another run with --out") from error
        except OSError as error:
            raise unreadable(self.model_file, error) from error

    frozen_file = Below(FROZEN_FILE)
    """The weights that no training changes; only exists if there are any."""
    prepared_file = Below("prepared.json")
    """The facts found by the preparation. A run is prepared once this file exists, because it is written last."""
    shards = Below("data", "shards")

    def shard(self, number: int) -> Path:
        """Return the path of a shard's samples."""
        return self.shards / f"shard_{number:03d}.npz"

    validation_file = Below("data", "validation.npz")
    test_file = Below("data", "test.npz")
    statistics_file = Below("data", "statistics.npz")
    """The samples of vcdl.run.own_statistics; only exists if the server computes the statistics."""
    journal_file = Below("journal.db")
    store = Below("store")
    snapshots = Below("snapshots")

    def snapshot(self, version: int) -> Path:
        """Return the path of a version's weights."""
        return self.snapshots / f"params_v{version:06d}.h5"

    def snapshot_versions(self) -> list[int]:
        """Return the versions that have a snapshot, ascending. File names would sort differently from a million on."""
        return sorted(int(path.stem.removeprefix("params_v")) for path in self.snapshots.glob("params_v*.h5"))

    def state_snapshot(self, version: int) -> Path:
        """Return the path of the rule's state that belongs to the weights of a version."""
        return self.snapshots / f"state_v{version:06d}.h5"

    reference_update_file = Below("snapshots", "reference_update.h5")
    """The reference update, with which uploads of strangers are compared; only exists in jobs for strangers."""
    downloads = Below("downloads")
    """Weights in the form that clients download; only exists if that differs from the form of the snapshots."""

    def download(self, version: int) -> Path:
        """Return the path of a version's weights as clients get them."""
        return self.downloads / f"params_v{version:06d}.h5"

    verify = Below("verify")
    """The files of a subtask that the evaluator retrains for verification; only exists while it does."""
    own_uploads = Below("own")
    """Updates of subtasks that the server trained itself; only exists in jobs for strangers in which hosts kept
    failing."""

    def own_upload(self, workunit: str) -> Path:
        """Return the path of an update that the server trained itself."""
        return self.own_uploads / f"{workunit}.h5"

    slots = Below("slots")
    uploads = Below("uploads")

    def waiting_uploads(self) -> list[Path]:
        """Return the files in `uploads`. Files that are still being written have hidden names and are omitted."""
        return list(self.uploads.glob("[!.]*.h5"))

    kept_uploads = Below("kept")
    """Uploads that were applied. The folder only exists in runs whose store may lose its memory, that are for
    strangers, or that keep all uploads."""

    def kept_upload(self, version: int, workunit: str) -> Path:
        """Return the path of an applied upload, whose name contains the version that it made."""
        return self.kept_uploads / f"v{version:06d}_{workunit}.h5"

    def versions_of_kept_uploads(self) -> list[tuple[Path, int]]:
        """Return the path of each kept upload with the version that it made, in no particular order."""
        found = ((path, path.name.partition("_")[0].removeprefix("v")) for path in self.kept_uploads.glob("v*.h5"))
        return [(path, int(version)) for path, version in found if version.isdecimal()]

    workers_log = Below("workers.log")
    stop_request = Below("stop.request")
    """The request to pause: the process that drives the run pauses it as soon as it finds this file."""
    clients_file = Below("clients.yaml")
    """The settings of simulated clients, as a user's clients file has them; exists only in simulated runs."""
    note_file = Below("note.json")
    summary_file = Below("summary.json")
    keras_file = Below("model.keras")
    plot_file = Below("curves.png")
    confusion_file = Below("confusion_matrix.csv")
    """The confusion matrix; exists only in runs whose labels are classes."""
    confusion_picture = Below("confusion_matrix.png")
    tensorboard = Below("tensorboard")

    def make(self) -> None:
        """Create the folder itself, without subfolders, so that it can be locked. An existing one is left as it is.

        Raises:
            RunFolderError: It cannot be created.
        """
        with folder_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def create(self, kind: RunKind = LOCAL) -> None:
        """Create the folder with its subfolders, and write the kind of its run unless the folder already has a job.

        Raises:
            RunFolderError: It cannot be created or written.
        """
        self.make()
        with folder_errors(self.path):
            if not self.job_file.exists():  # no run has started here
                with atomic_write(self.kind_file) as temporary:
                    temporary.write_text(f"{kind.name}\n", encoding="ascii")
            for folder in (self.path / "data", self.snapshots, self.slots, self.uploads):
                folder.mkdir(parents=True, exist_ok=True)

    @property
    def running_pid(self) -> int | None:
        """The id of the process that runs this folder now, or None.

        Raises:
            RunFolderError: The folder cannot be read.
        """
        with folder_errors(self.path):
            return holder_of(self.path / _LOCK_FILE)


class RunIsBusy(RunFolderError):
    """Raised when another process runs this folder."""

    def __init__(self, folder: RunFolder, pid: int) -> None:
        super().__init__(
            f"{folder.path} is being run by process {pid}: wait for it, end it with "
            f"`vcdl stop {shlex.quote(str(folder.path))}`, or use another folder"
        )
        self.pid = pid


class RunLock:
    """The lock of the process that drives a run, a context manager.

    At most one process holds it. The kernel releases it when the process dies, however it dies.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Acquire the lock.

        Raises:
            RunIsBusy: Another process holds it.
            RunFolderError: The folder cannot be locked.
        """
        with ExitStack() as held, folder_errors(self._folder.path):
            lock = held.enter_context(FileLock(self._folder.path / _LOCK_FILE, names_holder=True))
            # `status` and `watch` take the lock shared for an instant to see whether it is held. That must not make
            # this fail.
            if not lock.acquire(wait_s=_WAIT_S):
                raise RunIsBusy(self._folder, lock.holder())
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()


@dataclass(frozen=True)
class RestoreLock:
    """The lock between parameter servers: no server restores weights between another's fold and the fold's journal row.

    Without it, a slow server could write the row of a fold that its store has lost, after another server had restored
    the weights without that fold. The row would name a version that does not contain the update. The kernel releases
    the lock when its holder dies, however it dies.
    """

    folder: RunFolder

    @contextmanager
    def folding(self, *, shared: bool) -> Iterator[None]:
        """Hold the lock for a fold: from before it until its journal rows are written and its uploads are kept.

        Args:
            shared: Whether other folding servers may hold the lock too. If not, the journal has a row for every earlier
                fold of a living server once the lock is held, so the store can be compared with it.

        Raises:
            RunFolderError: The folder cannot be locked.
        """
        with self._held(shared=shared):
            yield

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Hold the lock exclusively: no server folds meanwhile, and every fold of a living server has its journal row.

        Raises:
            RunFolderError: The folder cannot be locked.
        """
        with self._held(shared=False):
            yield

    @contextmanager
    def _held(self, *, shared: bool) -> Iterator[None]:
        with ExitStack() as held:
            # A restoring process keeps the gate until it has the lock: otherwise servers that fold in turns would never
            # leave it free.
            with folder_errors(self.folder.path), locked(self.folder.path / "restore.gate", shared=shared):
                held.enter_context(locked(self.folder.path / "restore.lock", shared=shared))
            yield
