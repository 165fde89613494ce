"""The common part of grids whose clients' updates arrive in the run's folder `uploads`."""

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Sequence

from vcdl.journal.events import WorkunitSent
from vcdl.loop.grid import DrivenGrid, GaveUp, Outcome
from vcdl.run.folder import RunFolder
from vcdl.run.kept_weights import conclude_upload
from vcdl.run.staging import Staged, Uploaded


class FolderGrid(DrivenGrid):
    """The base class of grids whose updates this process moves into the run's folder `uploads`.

    A submitted workunit waits, is at a client, or has an upload or another outcome, until `done` removes it. After a
    kill the uploads are found in the folder again; workunits without one are submitted again by the loop.
    """

    def __init__(self, folder: RunFolder, *, hands_out_uploads: bool) -> None:
        """Create a grid over a run's folder.

        Args:
            folder: The run's folder.
            hands_out_uploads: If False, parameter servers take uploads from the folder, and `claim` returns only
                failures.
        """
        self._folder = folder
        self._hands_out_uploads = hands_out_uploads
        self._known: dict[str, Staged | None] = {}
        """Name of each workunit that is not done → its files; None: only its upload is known, from an earlier
        process."""
        self._waiting: deque[str] = deque()
        self._outcomes: dict[str, Outcome] = {}
        self._sent: list[WorkunitSent] = []

    @abstractmethod
    def _at_clients(self) -> Collection[str]:
        """Return the workunits that clients are training."""

    def submit(self, staged: Sequence[Staged]) -> None:
        for item in staged:
            name = item.workunit.name
            if name not in self._known:
                self._waiting.append(name)
            # Of a workunit whose upload an earlier process left, only the name is known until this call brings its
            # files.
            if self._known.get(name) is None and name not in self._outcomes:
                self._known[name] = item

    def claim(self) -> list[Outcome]:
        self.wait(0)
        return list(self._outcomes.values())

    def sent(self) -> list[WorkunitSent]:
        sent, self._sent = self._sent, []
        return sent

    def done(self, workunit: str, version: int | None = None) -> None:
        conclude_upload(self._folder, workunit, version)
        self._outcomes.pop(workunit, None)
        self._known.pop(workunit, None)

    def missing_uploads(self, workunits: Collection[str]) -> set[str]:
        if self._hands_out_uploads:
            return set()
        # A workunit that neither waits, nor is at a client, nor has another outcome, must have its upload in the
        # folder. If it has none, the upload was applied or somebody has deleted it.
        elsewhere = {*self._waiting, *self._outcomes, *self._at_clients()}
        uploaded = {workunit for workunit in workunits if workunit in self._known and workunit not in elsewhere}
        return uploaded - {path.stem for path in self._folder.waiting_uploads()} if uploaded else uploaded

    def lose(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self._outcomes[workunit] = GaveUp(workunit, f"its upload was deleted from {self._folder.uploads}")

    def _take_up_uploads(self) -> None:
        """Make the uploads that an earlier process left in the folder outcomes of this grid, the oldest first."""
        # They are taken in order of arrival, because an upload gets staler the longer it waits.
        for upload in sorted(self._folder.waiting_uploads(), key=lambda path: path.lstat().st_mtime_ns):
            self._known[upload.stem] = None
            self._has_come(Uploaded(upload.stem, upload, upload.lstat().st_size))

    def _has_come(self, upload: Uploaded) -> None:
        if self._hands_out_uploads:
            self._outcomes[upload.workunit] = upload
