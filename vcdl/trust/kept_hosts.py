"""Read the history of a job's hosts, stored in its journal (vcdl.journal.kept_state), for servers and for displays."""

from typing import NamedTuple, Self

from vcdl.job import Job
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import EVENTS, KeptState
from vcdl.run.folder import RunFolder
from vcdl.run.reading import journal_of
from vcdl.trust.host_record import KEPT_OF_ONE, HostState
from vcdl.trust.hosts import HostHistory


def hosts_of(journal: Journal, *, without: int | None = None) -> KeptState[HostHistory]:
    """Return the history of a job's hosts before any event is applied; call `load` or `advance` next.

    Args:
        journal: The job's events.
        without: Leave out lists that may have this many elements when loading the stored state (KeptState). Such a
            state is only for reading.
    """
    return KeptState(journal, "hosts", HostHistory(), code=("trust",), without=without)


def load_host_history(journal: Journal) -> KeptState[HostHistory]:
    """Return the history of a job's hosts as it was last stored; `advance` applies the events since.

    Raises:
        JournalError: The journal cannot be read.
    """
    return hosts_of(journal).load()


def shown_hosts(journal: Journal) -> KeptState[HostHistory]:
    """Return the history of a job's hosts for displays, without the long lists of unverified uploads.

    If the journal is long and no history is stored yet, one with all lists is computed and stored first.

    Raises:
        JournalError: The journal cannot be read.
    """
    shown = hosts_of(journal, without=KEPT_OF_ONE).load()
    # Nothing is stored yet. First compute and save the state with all lists, which writers can use too.
    if not shown.last_id and journal.last_id() >= EVENTS:
        load_host_history(journal).advance(save=True)  # applies all events once
        shown.load()
    return shown


def read_hosts(folder: RunFolder) -> HostHistory:
    """Return the history of a run's hosts up to its last event; empty if the run has no journal.

    The run may be running. Its journal is not changed; the history may be stored in a file next to it, for later reads.

    Raises:
        JournalError: The journal cannot be read.
    """
    with journal_of(folder) as journal:
        return HostHistory() if journal is None else load_host_history(journal).advance(save=True)


def bringing(folder: RunFolder) -> int:
    """Count the hosts of a run that have uploaded an update.

    Raises:
        JournalError: The journal cannot be read.
    """
    return read_hosts(folder).bringing


class ShownTrust(NamedTuple):
    """The trust in a host for displays. All fields are None if hosts are not judged, as all are the submitter's own."""

    state: HostState | None = None
    weight: float | None = None
    """The weight of its next upload, from 0 to 1."""
    verified: int | None = None
    """Number of its uploads that agreed with the server's own training."""

    @classmethod
    def of(cls, job: Job, hosts: HostHistory, host: str) -> Self:
        """Return what to show about a host; `hosts` must contain it."""
        if not job.is_for_strangers:
            return cls()
        return cls(hosts.state(host), hosts.weight(host), hosts.hosts[host].verified)

    @property
    def is_out(self) -> bool:
        """Whether its uploads are refused."""
        return self.state in (HostState.QUARANTINED, HostState.CONVICTED)


def hosts_out(job: Job, folder: RunFolder) -> frozenset[str]:
    """Return the names of the hosts whose uploads a run refuses now; empty if all are the submitter's own.

    Raises:
        JournalError: The journal cannot be read.
    """
    if not job.is_for_strangers:
        return frozenset()
    history = read_hosts(folder)
    return frozenset(filter(history.is_out, history.hosts))
