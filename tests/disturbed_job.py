"""A whole job in which everything happens that may; dice say what comes next, and the journal is a list.

Clients fail, come late or not at all, servers write their rows out of order, and the process is paused or killed
between any two actions.
"""

import random
from typing import Any, Self

from hypothesis import strategies as st
from msgspec import structs

from tests.job_events import applied, cancelled, created, evaluated, failed, refused, w, wanted
from vcdl.job.schema import EVERY_EPOCH
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RolledBack,
    RunFinished,
    RunPaused,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateSuperseded,
    WeightsPublished,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.lineage import Lineage
from vcdl.loop.coordinator import (
    Action,
    CloseEpoch,
    Coordinator,
    Create,
    Evaluate,
    EvaluateNewest,
    Finish,
    Publish,
    Stop,
)
from vcdl.loop.plan import Plan, Publishing
from vcdl.trust.collapse import Collapse
from vcdl.trust.job_trust import RollBack, TakeBack, TrustPlan
from vcdl.wire.workunit import WorkunitName

PLANS = st.builds(
    Plan, job=st.just("j"), seed=st.integers(0, 5), shards=st.integers(1, 6), rolling=st.booleans(),
    validate_every=st.sampled_from([EVERY_EPOCH, 1, 2, 5]), has_test=st.booleans(), epochs=st.integers(1, 3),
    target_accuracy=st.sampled_from([None, 0.9]), wall_time_s=st.sampled_from([None, 40.0]),
    patience_epochs=st.sampled_from([None, 1]), tries=st.integers(1, 4),
    trust=st.builds(TrustPlan, rolls_back=st.booleans()),
    publishing=st.sampled_from([None, Publishing(every_s=3.0, keeps_s=1e9)]),
)  # fmt: skip

_PAUSE_S = 500.0


class DisturbedJob:
    """Carries the actions out like the work generator, and lets clients, servers and evaluator do what the dice say."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.dice, self.workers = plan, random.Random(seed), 3
        self.now_s = 0.0
        self.journal: list[Recorded] = []
        self.keys: set[str] = set()
        self.coordinator = Coordinator(plan)
        self.version = 0
        """The store's."""
        self.is_ill = False
        """Whether measures are bad now."""
        self.unwritten: list[UpdateApplied] = []
        """Updates that the store has, and the journal not yet."""
        self.states: list[dict[str, Any]] = [state(self.coordinator)]
        """The coordinator's, after each length of the journal."""
        self.stores: list[tuple[int, list[UpdateApplied]]] = [(0, [])]
        """The store's version and what was unwritten, likewise."""

    @classmethod
    def run_to_its_end(cls, plan: Plan, seed: int) -> Self:
        job = cls(plan, seed)
        job.tell(RunStarted(resumed=False))
        job.run()
        return job

    def taken_up_from(self, length: int, seed: int) -> Self:
        """A job with the first rows of this one's journal, and other luck."""
        again = type(self)(self.plan, seed)
        again.tell(*(recorded.event for recorded in self.journal[:length]))
        again.version, again.unwritten = self.stores[length][0], list(self.stores[length][1])
        return again

    def tell(self, *events: Event) -> None:
        for event in events:
            if event.key is not None and event.key in self.keys:
                continue
            self.keys |= {event.key} if event.key else set()
            if isinstance(event, UpdateApplied):
                self.version = max(self.version, event.version)
            self.journal.append(Recorded(len(self.journal) + 1, self.now_s, event))
            self.coordinator.state.follow(self.journal[-1])
            self.states.append(state(self.coordinator))
            self.stores.append((self.version, list(self.unwritten)))
            self.now_s += 1.0

    def run(self) -> None:
        for _ in range(2000):
            rounds = 0
            while todo := self.coordinator.actions(self.now_s, self.workers):
                rounds += 1
                assert rounds < 1000, f"the same again and again: {todo}"
                assert (
                    len(self.coordinator.history.open) + sum(isinstance(action, Create) for action in todo)
                    <= self.workers
                )
                if self.dice.randrange(20) == 0:
                    self.tell(*(self.event_of(action) for action in todo[: self.dice.randrange(len(todo))]))
                    self.restart(paused=False)
                else:
                    self.tell(*(self.event_of(action) for action in todo))
            if self.coordinator.history.finished:
                return
            self.something_happens()
        raise AssertionError("the job does not come to an end")

    def event_of(self, action: Action) -> Event:
        match action:
            case Create(epoch, shard, attempt, base):
                return created(f"e{epoch} s{shard} a{attempt} v{self.version if base is None else base}")
            case CloseEpoch(epoch):
                return EpochClosed(epoch, self.version)
            case Evaluate(version, epoch, split):
                return wanted(version, epoch, split)
            case EvaluateNewest():
                return wanted(self.version, 0, "validation")
            case Publish():
                return WeightsPublished(self.version)
            case RollBack(collapse):
                return self.rolled_back(collapse)
            case TakeBack():
                raise AssertionError("nobody is convicted here")
            case Stop(reason):
                return StopDecided(reason.value, self.version)
            case Finish():
                return RunFinished()

    def rolled_back(self, collapse: Collapse) -> RolledBack:
        lineage = Lineage.of(row.event for row in self.journal)
        self.unwritten.clear()  # what the store had without a row, it has no longer
        self.version += 1
        self.is_ill = False
        dropped = tuple(update.version for update in lineage.after(collapse.to))
        return RolledBack(self.version, collapse.to, dropped, collapse.version, collapse.measured, collapse.usual)

    def restart(self, *, paused: bool) -> None:
        """The process ends, with a word or without one, and another one takes the job up later."""
        if paused:
            self.tell(RunPaused("interrupted"))
        self.now_s += _PAUSE_S
        self.tell(RunStarted(resumed=True))

    def something_happens(self) -> None:
        waiting = [
            row.event
            for row in self.journal
            if isinstance(row.event, EvaluationWanted)
            and f"evaluated:{row.event.split}:{row.event.version}" not in self.keys
        ]
        at_stake = [workunit for workunit in sorted(self.coordinator.history.open) if not self.is_unwritten(workunit)]
        if waiting and (self.dice.randrange(3) == 0 or not (at_stake or self.unwritten)):
            event = self.dice.choice(waiting)
            self.is_ill ^= self.dice.randrange(6) == 0
            score = self.dice.random() if not self.plan.trust.rolls_back else 0.1 if self.is_ill else 0.9
            self.tell(evaluated(event.version, event.epoch, score, event.split))
        elif self.unwritten and (self.dice.randrange(3) == 0 or not at_stake):
            self.tell(self.unwritten.pop(self.dice.randrange(len(self.unwritten))))
        else:
            self.something_happens_to(self.dice.choice(at_stake))

    def something_happens_to(self, workunit: str) -> None:
        name = WorkunitName.parse(workunit)
        at = f"e{name.epoch} s{name.shard} a{name.attempt} v{name.base_version}"
        luck = self.dice.randrange(12)
        if luck == 11:
            self.version += 1
            self.unwritten.append(applied(at, version=self.version))
        elif luck == 10:
            self.tell(WorkunitSent(workunit, "host", 5))
        elif luck == 9:
            self.tell(failed(at))
        elif luck == 8:
            self.tell(refused(at))
        elif luck == 7:
            self.restart(paused=self.dice.random() < 0.5)
        elif luck == 6 and self.lost:
            lost = self.dice.choice(self.lost)
            late = WorkunitName.parse(lost)
            if any(rolled.undoes(late.base_version) for rolled in self.coordinator.history.rollbacks):
                self.tell(UpdateSuperseded(lost, 5))
            else:
                self.tell(
                    applied(
                        f"e{late.epoch} s{late.shard} a{late.attempt} v{late.base_version}", version=self.version + 1
                    )
                )
        else:
            self.something_comes(at, name.base_version)

    def something_comes(self, at: str, given: int) -> None:
        """An upload; its client may have begun with newer weights than it was given."""
        newer = [version for version in self.coordinator.history.published if version > given]
        base = self.dice.choice([given, *newer])
        assert base in self.coordinator.versions_in_use, "the weights that a client may have begun with are kept"
        if any(rolled.undoes(base) for rolled in self.coordinator.history.rollbacks):
            self.tell(cancelled(at), UpdateSuperseded(w(at), 5))
        else:
            update = applied(at, version=self.version + 1)
            self.tell(structs.replace(update, base_version=base, staleness=update.version - 1 - base))

    @property
    def lost(self) -> list[str]:
        """Workunits that were given up; a client may bring one all the same."""
        failures = (row.event.workunit for row in self.journal if isinstance(row.event, WorkunitFailed))
        return [workunit for workunit in failures if not self.is_unwritten(workunit)]

    def is_unwritten(self, workunit: str) -> bool:
        """Whether the store has an update of this subtask whose row is not written yet."""
        subtask = WorkunitName.parse(workunit).subtask
        return any(WorkunitName.parse(update.workunit).subtask == subtask for update in self.unwritten)


def state(coordinator: Coordinator) -> dict[str, Any]:
    """All that a coordinator knows, to be compared."""
    return {name: repr(value) for name, value in vars(coordinator).items()}
