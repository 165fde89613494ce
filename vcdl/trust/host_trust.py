"""The trust in an upload, by its host's history (vcdl.trust.hosts): how far it counts."""

import math
from dataclasses import dataclass, replace
from typing import Self

from vcdl.errors.refusal import Refusal, Refused
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState
from vcdl.run.run import Run
from vcdl.run.staging import Uploaded
from vcdl.trust.hosts import LEAST_WEIGHT, NO_MEASURE, HostHistory
from vcdl.trust.kept_hosts import hosts_of

_REFUSED_AT_MOST = 2
"""Attempts at a subtask that are refused for what is in them."""


@dataclass
class HostTrust:
    """The hosts of one run, as far as its journal was read."""

    hosts: KeptState[HostHistory]
    judges: bool
    """False where the hosts are the submitter's own: all are believed, and the journal is not read."""
    limits_unknown: bool
    """Whether the server trains uploads again, and those of a host count in full only then."""

    @classmethod
    def of(cls, run: Run, journal: Journal) -> Self:
        """The hosts of a run."""
        return cls(hosts_of(journal), run.job.is_for_strangers, run.job.verifies)

    def catch_up(self) -> None:
        """Read what is new in the journal. Raises JournalError."""
        if not self.judges:
            return
        if not self.hosts.last_id:
            self.hosts.begin()
        self.hosts.now()
        self.hosts.keep()

    def named(self, upload: Uploaded) -> Uploaded:
        """An upload with its host, where only the journal knows it."""
        return upload if upload.host else replace(upload, host=self.hosts.state.sender(upload.workunit))

    def had_time_s(self, upload: Uploaded, now_s: float) -> tuple[float, float]:
        """Return for how long the host of an upload has had its workunit, and how long ago it brought a part of one.

        Both are infinite where all are believed, and what an earlier session would have to tell.
        """
        if not self.judges:
            return math.inf, math.inf
        held_s = self.hosts.state.held_s(upload.workunit, upload.host, now_s)
        record = self.hosts.state.hosts.get(upload.host)
        return math.inf if held_s is None else held_s, now_s - (record.part_at_s if record else -math.inf)

    @property
    def usual_fraction(self) -> float:
        """The part of a subtask that uploads of this job have; 0 where all are believed."""
        return self.hosts.state.usual_fraction if self.judges else 0.0

    def knows_host(self, upload: Uploaded) -> bool:
        """Whether the host of an upload is known, or makes no difference."""
        return not self.judges or bool(self.named(upload).host)

    def trust(self, host: str, *, is_part: bool = False, is_again: bool = False) -> float:
        """Return the weight of an upload, from 0 to 1; 0 of a host that is out, whose uploads are refused.

        A part of a subtask is no measure for others: its step is short, and theirs would look strange beside it. What
        is made again at a job's end counts less where few workunits are out: with nothing else brought meanwhile, a
        rule would take the weights of one shard for those of all (3 points of 100 on shards of uneven classes).
        """
        if not self.judges:
            return 1.0
        hosts = self.hosts.state
        weight = hosts.weight(host)
        if is_again and weight:
            weight = max(LEAST_WEIGHT, weight * hosts.busy_part)
        return min(weight, NO_MEASURE) if is_part or is_again else weight

    def may_be_doubted(self, host: str, attempt: int) -> bool:
        """Whether an upload that looks strange counts for little instead of being refused: of a host that has proved
        itself, as it will be trained again. The third attempt of one with a history, as a shard on which all honest
        steps look strange must come to an end, too.
        """
        hosts = self.hosts.state
        return hosts.is_proven(host) or (attempt >= _REFUSED_AT_MOST and hosts.is_known(host))

    def usual_train_s(self, host: str, samples: int) -> float | None:
        """Seconds that so many samples used to take a host; None: unknown."""
        return self.hosts.state.usual_train_s(host, samples)

    def refused(self, host: str, *, is_unfinished: bool = False) -> Refused | None:
        """Return why an upload of a host does not count now; None: it does."""
        history = self.hosts.state
        if not history.is_out(host):
            if is_unfinished and self.judges and not history.may_bring_part(host):
                return Refused(Refusal.UNFINISHED, f"{host} must bring a whole subtask before each part of one")
            if self.limits_unknown and not history.has_room(host):
                return Refused(
                    Refusal.NO_ROOM, f"{host} has brought its part, and none was, or can be, trained again here"
                )
            return None
        record = history.hosts[host]
        if record.convicted:
            why = f"its upload for {record.convicted} was not what the training gives"
        else:
            why = f"its uploads were refused; it is tried again after update {record.quarantined_until} of the job"
        return Refused(Refusal.QUARANTINED, f"{host}: {why}")
