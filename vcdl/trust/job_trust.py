"""Track a job's trust in its clients from its events, and decide when to roll back or remove a host's uploads.

A pure state machine: its state depends on the journal's events only, and is stored with the rest of the job's state.
One class serves both kinds of trust, and `plan` says which. If all clients are the submitter's own, it records nothing
and no action is ever due.
"""

import math
from collections.abc import Collection, Container
from dataclasses import dataclass, field
from typing import Self

from vcdl.journal.events import (
    HostConvicted,
    Recorded,
    RolledBack,
    StopDecided,
    UpdateApplied,
    VerificationEnded,
    WorkunitSent,
)
from vcdl.journal.monitor import Monitor
from vcdl.run.run import Run
from vcdl.trust.collapse import Collapse, CollapseWatch


@dataclass(frozen=True)
class RollBack:
    """Roll back to the last good version."""

    collapse: Collapse


@dataclass(frozen=True)
class TakeBack:
    """Roll back to version `to`, and apply all later updates again except those of a convicted host."""

    host: str
    versions: tuple[int, ...]
    """The versions that the host's uploads made."""
    to: int


@dataclass(frozen=True)
class TrustPlan:
    """The coordinator's settings of trust in a job's clients; by default they are the submitter's own."""

    tells_hosts_apart: bool = False
    """Whether failed tries are counted by host."""
    rolls_back: bool = False
    """Whether the job rolls back to its last good version after a collapse."""
    verifies: bool = False
    """Whether the server retrains subtasks: those of drawn uploads, and those at which hosts keep failing."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return the trust settings of a run."""
        job = run.job
        return cls(job.is_for_strangers, job.rolls_back and run.folder.kept_uploads.is_dir(), job.verifies)


OWN = TrustPlan()
"""The settings for the submitter's own machines."""


@dataclass
class JobTrust:
    """A job's trust by its journal: which host has which workunit, and which hosts are convicted.

    Call `follow` with each event before JobHistory applies it, because it needs the workunits that were still open.
    """

    plan: TrustPlan
    watch: CollapseWatch
    senders: dict[str, str] = field(default_factory=dict)
    """Open workunit → the last host it was sent to, if hosts are distinguished."""
    known: set[str] = field(default_factory=set)
    """Hosts with an applied update."""
    convicted: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Convicted host → the versions that its uploads made and that must still be removed."""
    verified: int = -1
    """The version up to which the server has finished the verification before the job's end."""

    @classmethod
    def of(cls, plan: TrustPlan, shards: int, monitor: Monitor | None) -> Self:
        """Return the state of a job before its first event.

        Args:
            plan: The settings of trust.
            shards: Number of the job's shards.
            monitor: The metric by which a collapse is detected, or None if the first evaluation decides.
        """
        return cls(plan, CollapseWatch(shards, monitor))

    def follow(self, recorded: Recorded, open_workunits: Container[str]) -> None:
        """Apply the next journal event.

        Args:
            recorded: The event.
            open_workunits: The names of the workunits that had not ended before it.
        """
        event = recorded.event
        match event:
            # Ignore a workunit that has ended, because its sender would never be forgotten.
            case WorkunitSent() if self.plan.tells_hosts_apart and event.workunit in open_workunits:
                self.senders[event.workunit] = event.host
            case UpdateApplied() if self.plan.tells_hosts_apart:
                self.known.add(self.who(event.workunit, event.host))
            case HostConvicted() if self.plan.rolls_back:
                # A host may be convicted again before the rollback of the first time is done.
                self.convicted[event.host] = (*self.convicted.get(event.host, ()), *event.versions)
            case RolledBack():
                self.convicted.pop(event.host, None)
            case VerificationEnded():
                self.verified = event.version
            case StopDecided():
                self.convicted.clear()
            case _:
                pass
        if self.plan.rolls_back:
            self.watch.follow(event)

    def forget_closed(self, open_workunits: Collection[str]) -> None:
        """Forget the hosts of workunits that are not in `open_workunits`, once they are more than half of all."""
        # A pass over all senders with each event would be slow. At this threshold it costs constant time per event.
        if len(self.senders) > 2 * len(open_workunits) + 16:
            self.senders = {workunit: host for workunit, host in self.senders.items() if workunit in open_workunits}

    # -- tries

    def who(self, workunit: str, host: str = "") -> str:
        """Return the host that trained a workunit, or the workunit's own name if no host is known."""
        return host or self.senders.get(workunit, workunit)

    def counts(self, who: str) -> bool:
        """Return whether a host's failure counts as a try.

        Among strangers only failures of hosts with an applied update count: names are free, and fifteen files of
        garbage under as many names would end the job.
        """
        return not self.plan.tells_hosts_apart or who in self.known

    def are_all(self, hosts: Collection[str], open_workunits: Container[str]) -> bool:
        """Return whether `hosts` are all hosts that have an open workunit or an applied update.

        Args:
            hosts: Names of hosts.
            open_workunits: The names of the workunits that have not ended.
        """
        at_work = (host for workunit, host in self.senders.items() if workunit in open_workunits)
        return all(host in hosts for host in (*at_work, *self.known))

    def tries_allowed(self, tries: int) -> float:
        """Return how many failures of a subtask end the job: `tries`, or infinity if the server then trains it."""
        return math.inf if self.plan.verifies else tries

    # -- versions

    def due(self, covered: int) -> RollBack | TakeBack | None:
        """Return the rollback that is due, or None; a collapse comes before a convicted host.

        Args:
            covered: The version after which all uploads are kept, so that they can be applied again.
        """
        if self.watch.collapse is not None:
            return RollBack(self.watch.collapse)
        for host, versions in self.convicted.items():
            # Uploads up to `covered` are no longer kept, so their effect can no longer be removed from the weights.
            if later := tuple(version for version in versions if version > covered):
                return TakeBack(host, later, max(end for end in (covered, *self.watch.to_keep) if end < later[0]))
        return None

    def covered(self, last_end: int, covered: int) -> int:
        """Return the version after which uploads must be kept, so that they can be applied again.

        Args:
            last_end: The version at the end of the last closed epoch: the answer if the job never rolls back.
            covered: The previous answer, below which a new one never falls if the job may roll back.
        """
        return max(covered, self.watch.covered) if self.plan.rolls_back else last_end

    @property
    def to_keep(self) -> Collection[int]:
        """The versions whose snapshots a rollback may need, ascending; empty if the job never rolls back."""
        return self.watch.to_keep if self.plan.rolls_back else ()

    def wants_measure_of(self, version: int) -> bool:
        """Return whether to evaluate the newest version too: a recent score was bad, from a collapse or by chance."""
        return self.watch.wants_measure_of(version)

    def is_verified(self, version: int) -> bool:
        """Return whether the verification before the job's end is over for `version`, or not needed.

        Until then the job must not end: a liar may have waited for the last uploads.
        """
        return not self.plan.verifies or self.verified >= version
