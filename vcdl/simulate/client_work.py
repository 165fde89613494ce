"""Produce the uploads of simulated clients by real training. The caller's virtual clock decides when they arrive."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from vcdl.client.residual import HostMemory, write_upload
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.errors import folder_errors
from vcdl.loop.grid import Outcome
from vcdl.run.staging import Staged, Uploaded
from vcdl.simulate.clients import Clients
from vcdl.simulate.training import SubtaskTraining
from vcdl.wire.npz_form import open_npz
from vcdl.wire.workunit import PLAIN, Transport, UpdateHeader


class ClientWork(Protocol):
    """Produces the uploads of a virtual grid's clients.

    Call `begin` when a client starts a subtask, `upload` when the upload is due, and `done` when it was applied; or
    `cancel` if no upload is needed.
    """

    remembers: bool
    """Whether clients keep residuals of their uploads, so that even an upload that is lost must be made."""

    def begin(self, staged: Staged, client: int, due_s: float, fraction: float = 1.0) -> None:
        """Start a subtask on a client.

        Args:
            staged: The subtask.
            client: The client's number.
            due_s: Virtual time at which its upload is needed; the earliest is trained first.
            fraction: Fraction of the subtask that the client trains.
        """
        ...

    def upload(self, staged: Staged, client: int, train_s: float) -> Outcome:
        """Return a client's upload, or why there is none; wait for its training if necessary.

        Args:
            staged: The subtask.
            client: The client's number.
            train_s: Virtual seconds of training, which the upload reports.

        Raises:
            GridError, RunFolderError: The training on this machine failed.
        """
        ...

    def bytes_down(self, staged: Staged, client: int) -> int:
        """Return the bytes that a client downloads for a subtask, and remember which files the client has now."""
        ...

    def done(self, workunit: str, version: int | None) -> None:
        """Forget a subtask and its files.

        Args:
            workunit: Its workunit's name.
            version: The version that its upload made, or None if it made none.
        """
        ...

    def cancel(self, workunits: Collection[str]) -> None:
        """Drop subtasks whose upload is not needed."""
        ...


class TrainedWork:
    """The work of simulated clients whose subtasks are really trained; only times and failures are simulated."""

    def __init__(
        self,
        clients: Clients,
        training: SubtaskTraining,
        encodings: tuple[Encoding, Encoding],
        memories: Path | None = None,
    ) -> None:
        """Create the work of simulated clients.

        Args:
            clients: The clients and their behaviour.
            training: Trains their subtasks.
            encodings: Encodings of downloads and of uploads.
            memories: Folder for the residuals of all clients, or None if clients keep none.
        """
        self._clients = clients
        self._training = training
        self._down, self._up = encodings
        self._memories = memories
        self.remembers = memories is not None
        self._delivered: dict[int, set[Path]] = {}
        """Client → the files that it has downloaded and keeps."""
        self._sizes: dict[Path, int] = {}
        self._samples: dict[Path, int] = {}
        """Shard's file → its number of samples."""

    def begin(self, staged: Staged, client: int, due_s: float, fraction: float = 1.0) -> None:
        if staged.workunit.training.target_s is not None:
            # The virtual clock decides how far a client gets. Real seconds of this machine would end the training at
            # another sample each time.
            staged = replace(staged, samples=max(1, int(fraction * self._all_samples(staged))))
        if self._memories is not None:
            # The training's result is stored exactly, because only when the upload is due is it known which client's
            # residual the codec adds.
            staged = replace(staged, workunit=replace(staged.workunit, transport=_exact_up(staged.workunit.transport)))
        self._order(staged, client, due_s)

    def upload(self, staged: Staged, client: int, train_s: float) -> Outcome:
        outcome = self._training.outcome(staged.workunit.name)
        return self._as_uploaded(outcome, staged, client, train_s) if isinstance(outcome, Uploaded) else outcome

    def bytes_down(self, staged: Staged, client: int) -> int:
        """Return the bytes that a client downloads for a subtask, and remember which files the client keeps."""
        have = self._delivered.setdefault(client, set())
        new = staged.sticky - have
        have |= new
        files = sum(path.stat().st_size for path in {staged.params, staged.start}) + sum(map(self._size, new))
        return files + len(staged.workunit.to_json().encode())

    def done(self, workunit: str, version: int | None) -> None:
        self._training.done(workunit, version)

    def cancel(self, workunits: Collection[str]) -> None:
        self._training.cancel(workunits)

    def _size(self, path: Path) -> int:
        """Return the size of a file that does not change, looked up once."""
        if path not in self._sizes:
            self._sizes[path] = path.stat().st_size
        return self._sizes[path]

    def _order(self, staged: Staged, client: int, due_s: float) -> None:
        """Start the training of a client's subtask."""
        self._training.begin(staged, due_s)

    def _as_uploaded(self, trained: Uploaded, staged: Staged, client: int, train_s: float) -> Uploaded:
        """Rewrite a trained upload as this client would send it, with its virtual training time, and return it."""
        path = trained.path
        with folder_errors(path.parent):
            self._send(staged, client, train_s, path)
            self._up.change_header(path, partial(_with_train_s, train_s))
        return replace(trained, size_bytes=path.stat().st_size)

    def _send(self, staged: Staged, client: int, train_s: float, path: Path) -> None:
        """Encode the upload at `path` again, as this simulated client would send it.

        Training wrote the weights without loss. They are replaced by the job's lossy encoding, with error feedback from
        the residuals of the client's host, and with a size that suits the host's upload rate if the job limits the
        upload time. If clients keep no residuals, the file is left unchanged.
        """
        if self._memories is None:
            return
        # A folder for each simulated host, as each real host has its own disk.
        memory, transport = self._memories / self._clients.host(client), staged.workunit.transport
        memory.mkdir(parents=True, exist_ok=True)
        exact = up_encoding(_exact_up(transport), self._up.layout)
        weights, header = exact.read(path)
        base, _ = self._down.read(staged.start)
        told = replace(UpdateHeader.from_json(header), codec=self._up.label, train_s=train_s)
        host = HostMemory(memory, self._clients.bytes_per_s(client))
        write_upload(self._up, path, weights, base, told, staged.workunit, host)

    def _all_samples(self, staged: Staged) -> int:
        """Return the number of samples that a client sees when it trains the whole subtask."""
        if staged.shard not in self._samples:
            with open_npz(staged.shard) as shard:
                self._samples[staged.shard] = shard.header("y").shape[0]
        return self._samples[staged.shard] * staged.workunit.training.local_epochs


def _exact_up(transport: Transport) -> Transport:
    """Return a transport whose uploads contain the exact weights."""
    return replace(transport, up=PLAIN.up, feedback=False, upload_share=None)


def _with_train_s(train_s: float, header: str) -> str:
    # Real times would make the journal differ from run to run, and would measure the simulating machine.
    return replace(UpdateHeader.from_json(header), train_s=train_s, times_s={}).to_json()
