"""The folder of a run: where everything lies, and the lock that keeps a second process out.

job.yaml        the resolved job, frozen when the run began
submitted       the job is run by the daemons of the BOINC project that the folder lies in
model.json      the model, as Keras JSON           prepared.json  its layout, the shards' sizes, the normalisation
data/           shards/ (with shards.json), validation.npz, test.npz
journal.db      the event log (SQLite)             store/         the shared weights
snapshots/      params_v000142.h5: weights by version, while something refers to them; state_v000142.h5: what the rule keeps beside
                held_out.h5: the step of held-out data that uploads are compared with, where the job asks for it
downloads/      the same as clients get them, where `transport > down` or `compress` makes them another file
slots/          a folder for each subtask that is out
uploads/        results that wait to be assimilated
kept/           those applied since the last closed epoch, when the store is a server that may lose its memory; all with keep > uploads: all
workers.log     what the workers print to stderr
summary.json  model.keras  accuracy.png  tensorboard/      what a run leaves behind
"""

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from vcdl.errors import RunFolderError, folder_error

_LOCK_FILE = "run.lock"
_PID_BYTES = 20
_PATIENCE_S = 0.5
"""Whoever asks for `running_pid` holds the lock for microseconds, which must not keep a run out."""


@dataclass(frozen=True)
class RunFolder:
    """Names inside a run's folder."""

    path: Path

    @classmethod
    def existing(cls, path: Path) -> Self:
        """Raises RunFolderError when there is no run in it."""
        folder = cls(path.resolve())
        if not path.exists():
            raise RunFolderError(
                f"there is no folder {path}: `vcdl status` without one shows the run that changed last"
            )
        if not folder.job_file.is_file():
            raise RunFolderError(f"{path} holds no run (it has no job.yaml): `vcdl run JOB.yaml` begins one")
        return folder

    @property
    def job_file(self) -> Path:
        return self.path / "job.yaml"

    @property
    def submitted_file(self) -> Path:
        """There when a BOINC project's daemons run the job, not a process of `vcdl run`."""
        return self.path / "submitted"

    @property
    def model_file(self) -> Path:
        return self.path / "model.json"

    @property
    def prepared_file(self) -> Path:
        """Written last when a run is prepared."""
        return self.path / "prepared.json"

    @property
    def shards(self) -> Path:
        return self.path / "data" / "shards"

    def shard(self, number: int) -> Path:
        """The samples of a shard."""
        return self.shards / f"shard_{number:03d}.npz"

    @property
    def validation_file(self) -> Path:
        return self.path / "data" / "validation.npz"

    @property
    def test_file(self) -> Path:
        return self.path / "data" / "test.npz"

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.db"

    @property
    def store(self) -> Path:
        return self.path / "store"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    def snapshot(self, version: int) -> Path:
        """The weights of a version."""
        return self.snapshots / f"params_v{version:06d}.h5"

    def state_snapshot(self, version: int) -> Path:
        """What the rule keeps beside the weights of a version."""
        return self.snapshots / f"state_v{version:06d}.h5"

    @property
    def held_out_file(self) -> Path:
        """The step of held-out data; exists only where the rule asks for it."""
        return self.snapshots / "held_out.h5"

    @property
    def downloads(self) -> Path:
        """Exists only where clients get weights in another form than the snapshots'."""
        return self.path / "downloads"

    def download(self, version: int) -> Path:
        """The weights of a version, as clients get them."""
        return self.downloads / f"params_v{version:06d}.h5"

    @property
    def slots(self) -> Path:
        return self.path / "slots"

    @property
    def uploads(self) -> Path:
        return self.path / "uploads"

    @property
    def kept_uploads(self) -> Path:
        """Exists only in runs whose store may lose its memory, or that keep all uploads."""
        return self.path / "kept"

    def kept_upload(self, version: int, workunit: str) -> Path:
        """An applied upload, by the version it made."""
        return self.kept_uploads / f"v{version:06d}_{workunit}.h5"

    @property
    def workers_log(self) -> Path:
        return self.path / "workers.log"

    @property
    def stop_request(self) -> Path:
        """While this file is there, the run ends as soon as it sees it."""
        return self.path / "stop.request"

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.json"

    @property
    def keras_file(self) -> Path:
        return self.path / "model.keras"

    @property
    def plot_file(self) -> Path:
        return self.path / "accuracy.png"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def make(self) -> None:
        """Make the folder alone. Raises RunFolderError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise folder_error(self.path, error) from error

    def create(self) -> None:
        """Make the folder and its parts. Raises RunFolderError."""
        try:
            for folder in (self.path, self.path / "data", self.snapshots, self.slots, self.uploads):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise folder_error(self.path, error) from error

    @property
    def running_pid(self) -> int | None:
        """The process that runs this folder now, or None. Raises RunFolderError."""
        try:
            descriptor = os.open(self.path / _LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise folder_error(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            return _holder(descriptor)
        finally:
            os.close(descriptor)


class RunIsBusy(RunFolderError):
    """Another process runs this folder."""

    def __init__(self, folder: RunFolder, pid: int) -> None:
        super().__init__(
            f"{folder.path} is being run by process {pid}: wait for it, end it with `vcdl stop {folder.path}`, or take another folder"
        )
        self.pid = pid


class RunLock:
    """Held by the process that runs a folder; the kernel lets go of it when the process dies, however it dies."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> Self:
        try:
            self._descriptor = os.open(self._folder.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise folder_error(self._folder.path, error) from error
        give_up_s = time.monotonic() + _PATIENCE_S
        while not self._acquired():
            if time.monotonic() > give_up_s:
                pid = _holder(self._descriptor)
                os.close(self._descriptor)
                raise RunIsBusy(self._folder, pid)
            time.sleep(_PATIENCE_S / 50)
        os.pwrite(self._descriptor, f"{os.getpid():<{_PID_BYTES}}".encode(), 0)
        return self

    def _acquired(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def _holder(descriptor: int) -> int:
    pid = os.pread(descriptor, _PID_BYTES, 0).strip()
    return int(pid) if pid.isdigit() else 0
