"""The history of a job's hosts, kept in its journal (vcdl.journal.kept_state)."""

from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import EVENTS, KeptState
from vcdl.run.folder import RunFolder
from vcdl.run.reading import journal_of
from vcdl.trust.host_record import KEPT_OF_ONE
from vcdl.trust.hosts import HostHistory


def hosts_of(journal: Journal, *, without: int | None = None) -> KeptState[HostHistory]:
    """Return the hosts of a job, of whose events nothing is read yet; `without`: see KeptState."""
    return KeptState(journal, "hosts", HostHistory(), code=("trust",), without=without)


def kept_hosts(journal: Journal) -> KeptState[HostHistory]:
    """Return the hosts of a job, begun from what is kept. Raises JournalError."""
    return hosts_of(journal).begin()


def shown_hosts(journal: Journal) -> KeptState[HostHistory]:
    """Return the hosts of a job for who only looks: without the uploads that a conviction would name, most of its
    memory.

    Raises JournalError.
    """
    shown = hosts_of(journal, without=KEPT_OF_ONE).begin()
    if not shown.last_id and journal.last_id() >= EVENTS:
        kept_hosts(journal).read()  # folds all of them once
        shown.begin()
    return shown


def read_hosts(folder: RunFolder) -> HostHistory:
    """Read the hosts of a run, running or not; its journal stays as it is. Raises JournalError."""
    with journal_of(folder) as journal:
        return HostHistory() if journal is None else kept_hosts(journal).read()


def bringing(folder: RunFolder) -> int:
    """Count the hosts of a run that brought an update. Raises JournalError."""
    return read_hosts(folder).bringing
