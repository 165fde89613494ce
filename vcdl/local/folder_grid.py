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
    """A grid whose clients' updates this process moves into the folder of uploads."""

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
        """The files of each workunit that is not done, by name; None: an earlier process submitted it."""
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
            # A workunit that an earlier process handed out is known by its name alone. Its files arrive with this call.
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
        # A workunit in none of these places must have its upload in the folder, or somebody has deleted the upload.
        elsewhere = {*self._waiting, *self._outcomes, *self._at_clients()}
        uploaded = {workunit for workunit in workunits if workunit in self._known and workunit not in elsewhere}
        return uploaded - {path.stem for path in self._folder.waiting_uploads()} if uploaded else uploaded

    def lose(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self._outcomes[workunit] = GaveUp(workunit, f"its upload was deleted from {self._folder.uploads}")

    def _take_up_uploads(self) -> None:
        """Queue the uploads that an earlier process left, the oldest first."""
        # In order of arrival, because an upload gets staler the longer it waits.
        for upload in sorted(self._folder.waiting_uploads(), key=lambda path: path.lstat().st_mtime_ns):
            self._known[upload.stem] = None
            self._has_come(Uploaded(upload.stem, upload, upload.lstat().st_size))

    def _has_come(self, upload: Uploaded) -> None:
        if self._hands_out_uploads:
            self._outcomes[upload.workunit] = upload
