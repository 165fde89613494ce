"""What a parameter server makes of a host's history (vcdl.journal.hosts): how far each upload counts."""

from dataclasses import dataclass, replace
from typing import Self

from vcdl.checks import Refusal, Refused
from vcdl.journal.hosts import HostHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState
from vcdl.loop.grid import Uploaded
from vcdl.run.run import Run


@dataclass
class HostTrust:
    """The hosts of one run, as far as its journal was read."""

    hosts: KeptState[HostHistory]
    judges: bool
    """False where the hosts are the submitter's own: all are believed, and the journal is not read."""

    @classmethod
    def of(cls, run: Run, journal: Journal) -> Self:
        """The hosts of a run."""
        return cls(KeptState(journal, "hosts", HostHistory()), run.job.is_for_strangers)

    def catch_up(self) -> None:
        """Read what is new in the journal. Raises JournalError."""
        if not self.judges:
            return
        if not self.hosts.last_id:
            self.hosts.begin()
        self.hosts.now()
        self.hosts.keep()

    @property
    def _history(self) -> HostHistory:
        return self.hosts.state

    def named(self, upload: Uploaded) -> Uploaded:
        """An upload with its host, where only the journal knows it."""
        return upload if upload.host else replace(upload, host=self._history.sender(upload.workunit))

    def trust(self, upload: Uploaded) -> float:
        """How far an upload counts, in (0, 1]."""
        host = self.named(upload).host
        return self._history.weight(host) if host and self.refused(upload) is None else 1.0

    def usual_train_s(self, upload: Uploaded, samples: int) -> float | None:
        """Seconds that so many samples used to take its host; None where nobody knows."""
        return self._history.usual_train_s(self.named(upload).host, samples)

    def applied(self, upload: Uploaded) -> int:
        """How many uploads of this host are applied."""
        record = self._history.hosts.get(self.named(upload).host)
        return 0 if record is None else record.applied

    def refused(self, upload: Uploaded) -> Refused | None:
        """Why nothing of this host counts now; None: it does."""
        host = self.named(upload).host
        if not self._history.is_quarantined(host):
            return None
        score, until = self._history.score(host), self._history.hosts[host].quarantined_until
        return Refused(
            Refusal.QUARANTINED,
            f"{host} has the score {score:.1f}: it is tried again after update {until} of the job",
        )
