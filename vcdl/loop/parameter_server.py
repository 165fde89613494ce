"""A parameter server: it folds the uploads of one run into the shared weights, and repairs a store that lost them."""

from typing import Self

from vcdl.journal.journal import Journal
from vcdl.loop.assimilator import Assimilator
from vcdl.loop.grid import Results
from vcdl.loop.recovery import restore_store, whole_unless_behind
from vcdl.run.run import Run
from vcdl.stores import WeightStore


class ParameterServer:
    """Applies the uploads of one run to its shared weights.

    Any number of parameter servers may serve a run, and each may be killed at any moment: the store applies no subtask
    twice, and an upload stays claimable until its journal row is written. Call `catch_up` before the first `run_once`.
    """

    def __init__(self, run: Run, journal: Journal, store: WeightStore, results: Results) -> None:
        self.store = store
        self._run = run
        self._journal = journal
        self._assimilator = Assimilator(run, journal, store, run.snapshots(store), results)
        self.check = self._assimilator.check
        """The check of uploads, whose limits adapt to the uploads that it accepts."""

    @classmethod
    def of(cls, run: Run, journal: Journal, results: Results) -> Self:
        """Open a parameter server with its own connection to the run's store.

        Raises:
            StoreError: The store cannot be opened.
        """
        return cls(run, journal, run.store(journal), results)

    def catch_up(self) -> int:
        """Check the store, and restore its weights if it is behind the journal or has lost them.

        Returns:
            How many updates were applied again to restore it; 0 if it was complete.

        Raises:
            StoreError, JournalError: It cannot be restored.
        """
        # Refuse a server whose eviction policy may drop weights now, and not when its memory is full.
        self.store.check_service()
        # The whole vector is read, because a chunk may be missing although the version number exists.
        folded, whole = 0, whole_unless_behind(self.store)
        if whole is None:
            folded = self.restore()
            _, whole = self.store.read_whole()
        # Until an upload was accepted the norm of the shared weights is the reference for an upload's norm.
        self.check.expect(self.store.state.weights(whole))
        return folded

    def run_once(self) -> int:
        """Assimilate the waiting uploads, and return how many results were finished.

        Raises:
            Unavailable: Something cannot be reached now; call again.
            StoreLost: The store lost the weights; call `restore`.
            VcdlError: The run cannot continue.
        """
        return self._assimilator.run_once()

    def restore(self) -> int:
        """Restore the weights after StoreLost, and return how many updates were applied again.

        Raises:
            StoreError: They cannot be restored.
        """
        return restore_store(self._run, self.store, self._journal)

    def close(self) -> None:
        """Close the connection to the store."""
        self.store.close()
