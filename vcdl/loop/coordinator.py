"""The coordinator: a state machine that turns a job's events into actions. It does no I/O and has no clock.

The state depends on the journal's events only, and the next actions depend on the state only. So a job is resumed by
applying its journal again. An action that was carried out shows as an event; an action that was lost is returned again.

`pacing: rolling` creates a subtask only when the grid runs low, from the newest weights. The next epoch may start
before the last subtasks of this epoch are applied. With `pacing: epoch` (the paper's), all subtasks of an epoch start
from the weights that the previous epoch ended with.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from vcdl.journal.events import FINAL_SPLITS, VALIDATION, StopReason
from vcdl.journal.history import CreationContext, JobHistory
from vcdl.loop.job_state import JobState
from vcdl.loop.plan import Plan
from vcdl.trust.job_trust import RollBack, TakeBack


@dataclass(frozen=True)
class Create:
    """Create a workunit that starts from `base_version`, or from the newest weights if it is None."""

    epoch: int
    shard: int
    attempt: int
    base_version: int | None


@dataclass(frozen=True)
class CloseEpoch:
    """Close this epoch: the snapshot of the newest weights is its result."""

    epoch: int


@dataclass(frozen=True)
class Evaluate:
    """Keep a snapshot of a version, to be evaluated on a split."""

    version: int
    epoch: int
    split: str


@dataclass(frozen=True)
class EvaluateNewest:
    """Keep a snapshot of the newest version, to be evaluated in addition to the versions of the job's schedule."""


@dataclass(frozen=True)
class Stop:
    """End the training: cancel the open workunits and keep a snapshot of the newest weights as the job's result."""

    reason: StopReason


@dataclass(frozen=True)
class Finish:
    """End the job: everything has been evaluated."""


@dataclass(frozen=True)
class Publish:
    """Offer the newest weights to clients that start a workunit."""


Action = Create | CloseEpoch | Evaluate | EvaluateNewest | Publish | RollBack | TakeBack | Stop | Finish


class Coordinator:
    """Decides the next actions of a job from its state, which follows from the job's events.

    It carries out nothing itself: the same state gives the same actions until their events are applied.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.state = JobState.of(plan)
        """The whole state, which follows from the job's events. The coordinator remembers nothing else between
        calls."""

    @property
    def history(self) -> JobHistory:
        """The job's history according to its events. All decisions follow from it."""
        return self.state.history

    def actions(self, now_s: float, target_open_workunits: int) -> list[Action]:
        """Return the actions to take now.

        Carry them out, apply their events, and call this again until the list is empty. Validations come before the
        end of their epoch, so that a reader of a closed epoch knows which of its versions are evaluated.

        Args:
            now_s: The journal's time, in seconds.
            target_open_workunits: Number of workunits that the grid wants unsent or running.
        """
        history = self.history
        if history.finished:
            return []
        evaluations: list[Action] = [Evaluate(version, epoch, VALIDATION) for version, epoch in self.state.due.items()]
        # After the stop only evaluations are left to do. The job is finished when the last one is in the journal.
        if history.stop is not None:
            evaluations += self._final_evaluations(history.stop.version)
            return evaluations or ([] if history.wanted else [Finish()])
        # Return it alone and before everything else: an epoch that is closed now, or a workunit that is created now,
        # would refer to weights that are about to be undone.
        if (back := self.going_back) is not None:
            return [back]
        reason = self._reason_to_stop(now_s)
        # A stop cancels the open workunits, so nothing is created and no epoch is closed in the same step.
        if reason is not None:
            return [Stop(reason)]
        if self._must_be_looked_at():
            evaluations.append(EvaluateNewest())
        if self._must_publish(now_s):
            evaluations.append(Publish())
        return [*evaluations, *self._epochs_to_close(), *self._workunits_to_create(target_open_workunits)]

    # -- further questions of the work generator

    @property
    def versions_in_use(self) -> set[int]:
        """Versions whose snapshots must not be deleted, besides `versions_to_fold_again_with`."""
        history = self.history
        # Each of these is read later: by open workunits, by evaluations, when the store is restored, by a rollback, or
        # by the export of the best epoch. A version in none of these sets is removed.
        versions = set(history.bases)
        versions.update(self.state.due, (version for version, _ in history.wanted))
        versions |= {history.version, history.end_of(len(history.closed))}
        # The uploads before this version were lost with the newer folder: a restore can only start from its snapshot.
        if self.state.rewritten > self.state.covered:
            versions.add(self.state.rewritten)
        versions.update(self.state.trust.to_keep)
        if self._plan.publishing is not None:
            # A client may still be training from a published version, although no workunit names it as its base.
            versions |= history.published_since(history.last_s - self._plan.publishing.keeps_s)
        if history.best_epoch is not None:
            versions.add(history.closed[history.best_epoch.epoch].event.version)
        if history.stop is not None:
            versions.add(history.stop.version)
        return versions

    @property
    def going_back(self) -> RollBack | TakeBack | None:
        """The rollback that is due, or None: after a collapse (RollBack), or to remove a liar's updates (TakeBack)."""
        return self.state.trust.due(self.state.covered)

    @property
    def versions_to_fold_again_with(self) -> set[int]:
        """Base versions of the updates since the last closed epoch, if the rule or codec needs them for a restore.

        Their snapshots must be kept: without them these updates cannot be folded again after the store has lost its
        weights.
        """
        stop = self.history.stop
        is_over = stop is not None and stop.reason != StopReason.SUBTASK_FAILED
        return set(self.state.bases.values()) if self._plan.needs_bases and not is_over else set()

    def slots_to_leave_free(self, slots: int) -> int:
        """Return how many of the grid's `slots` the job does not use yet, because it begins with few and adds more."""
        return self._plan.slots_to_leave_free(slots, self.history.made)

    def rate(self, epoch: int, shard: int, context: CreationContext) -> float:
        """Return the learning rate of a new workunit, as a factor of the job's peak.

        It depends on the subtask's place in the order of creation, and on the numbers of active clients and
        open workunits when this workunit was created. A retried subtask gets the place of the newest subtask, because a
        step of its original length would undo later progress. Subtasks that must be retrained because their updates
        were lies do not count towards the place, because that much of the job is still to be done. Once all epochs are
        closed they count: then so few are open that each has much weight, and a long step would undo the convergence of
        the last epochs.
        """
        plan = self._plan
        # The rate follows from the journal and the seed only: a workunit that is submitted again after a kill must get
        # the same rate, or its files would differ under one name.
        place = (epoch - 1) * plan.shards + _order(plan.seed, epoch, plan.shards).places[shard]
        again = context.again if len(self.history.closed) < plan.epochs else 0
        place = max(0, max(place, context.made - 1) - again)
        return plan.rate.at(place, plan.epochs * plan.shards, context.active_clients, context.open)

    # -- deciding

    def _final_evaluations(self, version: int) -> list[Action]:
        """Return the evaluations of a job's result that were not requested yet."""
        splits = FINAL_SPLITS if self._plan.has_test else FINAL_SPLITS[:1]
        return [Evaluate(version, 0, split) for split in splits if not self.history.is_announced(version, split)]

    def _must_be_looked_at(self) -> bool:
        """Return whether to evaluate the newest version now, as a recent score was bad and it is not evaluated yet."""
        if not self.state.trust.wants_measure_of(self.history.version):
            return False
        # Only one extra measurement at a time: the answer may make the next one unnecessary.
        is_known = self.history.version in self.state.due or self.history.is_announced(self.history.version, VALIDATION)
        return not is_known and not any(split == VALIDATION for _, split in self.history.wanted)

    def _must_publish(self, now_s: float) -> bool:
        """Return whether to publish the weights now.

        That is when open workunits could start from a newer version than the last published one, and `every_s`
        have passed since that was published.
        """
        publishing, history = self._plan.publishing, self.history
        # In `pacing: epoch` all subtasks of an epoch start from the same version by definition, so a newer version is
        # of no use to them.
        if publishing is None or not self._plan.rolling or not history.open:
            return False
        last, last_s = next(reversed(history.published.items()), (0, -math.inf))
        return history.version > last and now_s - last_s >= publishing.every_s

    def _reason_to_stop(self, now_s: float) -> StopReason | None:
        """Return why the training must end now, or None."""
        plan, history = self._plan, self.history
        best = history.best_epoch
        if self.state.tries.exhausted:
            return StopReason.SUBTASK_FAILED
        if best is not None:
            targets = {StopReason.TARGET_ACCURACY: plan.target_accuracy, StopReason.TARGET: plan.target}
            for reason, target in targets.items():
                # Compare the newest epoch, not the best: after a resume with a later target, the weights of the best
                # epoch may be gone.
                if target is not None and history.monitor.reaches(history.epochs[-1].mean, target):
                    return reason
            # An epoch is in `epochs` when it is measured, not when it is closed. A job for strangers also waits until
            # drawn uploads are verified, or a lie in the last epoch would stay in the result.
            if len(history.epochs) >= plan.epochs and self.state.is_settled:
                return StopReason.EPOCHS
            if plan.patience_epochs is not None and len(history.epochs) - best.epoch >= plan.patience_epochs:
                return StopReason.NO_IMPROVEMENT
        if plan.wall_time_s is not None and history.wall_s_at(now_s) >= plan.wall_time_s:
            return StopReason.WALL_TIME
        return None

    def _epochs_to_close(self) -> list[Action]:
        """Return the close of the next epoch if all its shards are applied, otherwise nothing."""
        # Close one at a time and in order, although epochs overlap: scores and patience are defined over the order of
        # epochs.
        epoch = len(self.history.closed) + 1
        return [CloseEpoch(epoch)] if self.history.applied_by_epoch[epoch] == self._plan.shards else []

    def _workunits_to_create(self, target_open_workunits: int) -> list[Action]:
        """Return the workunits to create: retries first, then this epoch's shards in order, then the next epoch's."""
        plan, made = self._plan, self.history.made
        # The grid may want less than before, for instance when hosts leave. That is no reason to withdraw open
        # workunits.
        free = max(0, target_open_workunits - len(self.history.open))
        created: list[Action] = [
            Create(epoch, shard, attempt, self._base_version(epoch))
            for (epoch, shard), attempt in islice(self.state.tries.waiting.items(), free)
        ]
        # `made` counts first attempts only, so retries above do not move the place in the epoch's order.
        while len(created) < free:
            epoch, position = made // plan.shards + 1, made % plan.shards
            if not self._may_begin(epoch):
                break
            shard = _order(plan.seed, epoch, plan.shards).shards[position]
            created.append(Create(epoch, shard, 0, self._base_version(epoch)))
            made += 1
        return created

    def _may_begin(self, epoch: int) -> bool:
        """Return whether subtasks of an epoch may be created now."""
        ahead = 1 if self._plan.rolling else 0  # rolling never runs more than one epoch ahead of a straggler
        return epoch <= self._plan.epochs and epoch <= len(self.history.closed) + 1 + ahead

    def _base_version(self, epoch: int) -> int | None:
        """Return the version that subtasks of an epoch start from, or None for the newest."""
        return None if self._plan.rolling else self.history.end_of(epoch - 1)


@dataclass(frozen=True)
class _Order:
    """The order in which an epoch's subtasks are created."""

    shards: tuple[int, ...]
    """Place → shard."""
    places: tuple[int, ...]
    """Shard → place."""


@lru_cache(maxsize=32)  # a few epochs of each open job: the order of 10 000 shards takes a millisecond
def _order(seed: int, epoch: int, shards: int) -> _Order:
    """Return the random order of an epoch's subtasks, which is the same at each call."""
    order = np.random.default_rng([seed, epoch]).permutation(shards)
    return _Order(tuple(order.tolist()), tuple(np.argsort(order).tolist()))
