"""The history of a job's hosts, kept in its journal (vcdl.journal.kept_state), and what is shown of it."""

from typing import NamedTuple, Self

from vcdl.job import Job
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import EVENTS, KeptState
from vcdl.run.folder import RunFolder
from vcdl.run.reading import journal_of
from vcdl.trust.host_record import KEPT_OF_ONE, HostState
from vcdl.trust.hosts import HostHistory


def hosts_of(journal: Journal, *, without: int | None = None) -> KeptState[HostHistory]:
    """Return the hosts of a job, before any event is read.

    Args:
        journal: The job's events.
        without: See KeptState.
    """
    return KeptState(journal, "hosts", HostHistory(), code=("trust",), without=without)


def kept_hosts(journal: Journal) -> KeptState[HostHistory]:
    """Return the hosts of a job, starting from the cache. Raises JournalError."""
    return hosts_of(journal).load()


def shown_hosts(journal: Journal) -> KeptState[HostHistory]:
    """Return the hosts of a job for readers: without the uploads that a conviction would name, which take most memory.

    Raises JournalError.
    """
    shown = hosts_of(journal, without=KEPT_OF_ONE).load()
    # Nothing is kept yet. Folding with all lists first leaves a state that the writers can use too.
    if not shown.last_id and journal.last_id() >= EVENTS:
        kept_hosts(journal).advance(save=True)  # folds all of them once
        shown.load()
    return shown


def read_hosts(folder: RunFolder) -> HostHistory:
    """Read the hosts of a run, running or not; its journal stays as it is. Raises JournalError."""
    with journal_of(folder) as journal:
        return HostHistory() if journal is None else kept_hosts(journal).advance(save=True)


def bringing(folder: RunFolder) -> int:
    """Count the hosts of a run that brought an update. Raises JournalError."""
    return read_hosts(folder).bringing


class ShownTrust(NamedTuple):
    """The trust in a host; None where none is judged, as all are the submitter's own."""

    state: HostState | None = None
    weight: float | None = None
    verified: int | None = None

    @classmethod
    def of(cls, job: Job, hosts: HostHistory, host: str) -> Self:
        """Return the trust of a job in one of its hosts."""
        if not job.is_for_strangers:
            return cls()
        return cls(hosts.state(host), hosts.weight(host), hosts.hosts[host].verified)

    @property
    def is_out(self) -> bool:
        """Whether its uploads are refused."""
        return self.state in (HostState.QUARANTINED, HostState.CONVICTED)


def hosts_out(job: Job, folder: RunFolder) -> frozenset[str]:
    """Return the hosts of a run whose uploads are refused now. Raises JournalError."""
    if not job.is_for_strangers:
        return frozenset()
    history = read_hosts(folder)
    return frozenset(filter(history.is_out, history.hosts))
