"""Trust in strangers: an upload counts by its host's history, its step, and the uploads of others.

How much a host may upload, and how far it is trusted, follows from the journal (vcdl.trust.hosts). Each step is limited
to the movement of honest training (vcdl.trust.bounds), and a step far longer than others', or against all of them, is
refused (vcdl.trust.step). Lies that look honest are found by retraining uploads (vcdl.trust.verification).
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack

from vcdl.errors.refusal import Refusal, Refused
from vcdl.journal.events import Recorded, RolledBack, UpdateApplied, WorkunitCreated
from vcdl.journal.journal import Journal
from vcdl.run.run import Run
from vcdl.run.staging import Uploaded
from vcdl.trust.bounds import Bounds
from vcdl.trust.contract import Admission, Measuring, Trust, UploadFacts
from vcdl.trust.hosts import LEAST_WEIGHT, NO_MEASURE, HostHistory
from vcdl.trust.kept_hosts import hosts_of
from vcdl.trust.measuring_pass import MeasuringPass
from vcdl.trust.own import Own
from vcdl.trust.reference_file import ReferenceFile
from vcdl.trust.step import StepCheck
from vcdl.wire.workunit import UpdateHeader, WorkunitName

_REFUSED_AT_MOST = 2
"""Attempts at a subtask that are refused for their content, so that a shard with strange data still ends."""
_HELD = 0.5
"""Fraction of a subtask's time for which a host must have had it. It is below 1, because the grid reports a few seconds
late when the workunit was sent."""
_NEXT_TO_NOTHING = 0.25
"""Fraction of the usual part above which an upload that ends by time completes its subtask. Otherwise a host that takes
eight tasks at a time and trains one batch of each completes most subtasks of a job (10 points of 100). With a half,
every second subtask would be reissued for hosts whose speeds differ by 16."""


class Strangers:
    """Decides how uploads of strangers count (`Trust`), from the journal as far as `catch_up` has read it."""

    def __init__(self, run: Run, journal: Journal) -> None:
        self._job = run.job
        self._journal = journal
        self._hosts = hosts_of(journal)
        self._steps = StepCheck()
        self._bounds = Bounds.of(run)
        """The limits on steps, or None if the run was prepared before steps were bounded."""
        self._reference = ReferenceFile(run.folder.reference_update_file, run.layout)

    @property
    def _history(self) -> HostHistory:
        return self._hosts.state

    def measurement(self, facts: UploadFacts, opened: ExitStack) -> MeasuringPass | None:
        if self._bounds is None:
            return None
        return MeasuringPass(self._bounds, facts, self._reference.open(opened), self._steps)

    def catch_up(self) -> None:
        # On the first call, load the cache, and the cosines of the last accepted steps from the journal, so that a
        # restarted server judges like the one before.
        if not self._hosts.last_id:
            self._hosts.load()
            applied = (row.event for row in self._journal.backwards(UpdateApplied))
            self._steps.recall((one.cosine, one.reference_cosine) for one in applied if isinstance(one, UpdateApplied))
        self._hosts.advance(save=True)

    def host_of(self, upload: Uploaded) -> str:
        return upload.host or self._history.sender(upload.workunit)

    def key_of(self, upload: Uploaded) -> str:
        return self.host_of(upload)

    def admit(
        self, upload: Uploaded, header: UpdateHeader, counted: float, created: Recorded | None, now_s: float
    ) -> Admission:
        host, history = self.host_of(upload), self._history
        is_part, is_early = self._part(upload.workunit, host, counted, now_s)
        is_bounded = self._bounds is not None
        return Admission(
            host=host,
            weight=self._weight(host, is_part=is_part, is_again=WorkunitName.parse(upload.workunit).turn > 0),
            refused=self._find_refusal(host, is_early=is_early),
            is_part=is_part,
            usual_train_s=history.usual_train_s(host, header.samples),
            # Lengths are compared at the same rate. Use the rate in the journal and not the upload's, which its client
            # writes.
            rate=created.event.rate if is_bounded and created and isinstance(created.event, WorkunitCreated) else 1.0,
        )

    def may_be_doubted(self, host: str, attempt: int) -> bool:
        """Return whether a suspicious upload gets a small weight instead of being refused.

        This applies to a host with a verified upload, since the server soon retrains this one, too. From the third
        attempt on, it also applies to every host that is no longer judged as one of the newcomers: a shard on which
        all honest steps look suspicious must be completed, too.
        """
        return self._history.is_proven(host) or (attempt >= _REFUSED_AT_MOST and self._history.is_known(host))

    def accept(self, cosine: float | None, reference: float | None) -> None:
        self._steps.accept(cosine, reference)

    def rollbacks(self) -> Sequence[RolledBack]:
        if not self._job.rolls_back:
            return ()
        return [
            row.event
            for row in self._journal.events_with_key_prefix(RolledBack.kind)
            if isinstance(row.event, RolledBack)
        ]

    def _part(self, workunit: str, host: str, counted: float, now_s: float) -> tuple[bool, bool]:
        """Return whether an upload leaves a part of its subtask to be reissued, and whether it came too early.

        It came too early if its host had the workunit for less than half of a subtask's time (`target_s`), or if it is
        a part and the host's last part came less than that before.
        """
        target_s, history = self._job.training.target_s, self._history
        if counted >= 1.0:
            return False, False
        # A client may claim that its time was up. The server only believes what it saw: how long the host had the
        # workunit.
        held_s, record = history.held_s(workunit, host, now_s), history.hosts.get(host)
        if target_s is None or (held_s is not None and held_s < _HELD * target_s):
            return True, True
        since_part_s = now_s - (record.part_at_s if record else -math.inf)
        is_part = counted < _NEXT_TO_NOTHING * min(1.0, self._job.training.most_counted * history.usual_fraction)
        return is_part, is_part and since_part_s < _HELD * target_s

    def _weight(self, host: str, *, is_part: bool, is_again: bool) -> float:
        """Return the weight of an upload, from 0 to 1; 0 for a host in quarantine, whose uploads are refused.

        Other uploads are not compared with a part of a subtask: its step is short, and they would look suspicious. A
        reissued subtask at a job's end counts less while few workunits are open: without other updates, a rule would
        take the weights of one shard for those of all (3 points of 100 on shards of uneven classes).
        """
        weight = self._history.weight(host)
        if is_again and weight:
            weight = max(LEAST_WEIGHT, weight * self._history.busy_part)
        return min(weight, NO_MEASURE) if is_part or is_again else weight

    def _find_refusal(self, host: str, *, is_early: bool) -> Refused | None:
        """Return why an upload of a host is refused now, or None if it is not."""
        history = self._history
        if not history.is_out(host):
            if is_early and not history.may_bring_part(host):
                return Refused(
                    Refusal.UNFINISHED, f"{host} must complete a whole subtask before it may upload a part of one"
                )
            if self._job.verifies and not history.has_room(host):
                return Refused(
                    Refusal.NO_ROOM,
                    f"{host} used up its share of uploads, and none was, or can be, verified by retraining",
                )
            return None
        record = history.hosts[host]
        if record.convicted:
            why = f"its upload for {record.convicted} was not the result of the training"
        else:
            why = f"its uploads were refused; it is admitted again after update {record.quarantined_until} of the job"
        return Refused(Refusal.QUARANTINED, f"{host}: {why}")


def trust_of(run: Run, journal: Journal) -> Trust:
    """Return what decides on a run's uploads: `Strangers`, or `Own` if all clients are the submitter's."""
    if run.job.is_for_strangers:
        return Strangers(run, journal)
    return Own(ends_by_time=run.job.training.target_s is not None)


def refolded(run: Run) -> Measuring:
    """Return the function that measures uploads when they are applied again: it limits steps, but never refuses."""
    # No StepCheck: these uploads were applied before, and another verdict would change the weights.
    bounds = Bounds.of(run)
    return lambda facts, opened: None if bounds is None else MeasuringPass(bounds, facts)
