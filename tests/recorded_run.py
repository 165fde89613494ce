"""A short run as its journal tells it: two sessions, two epochs of two shards, one failure, one refusal, one
latecomer.
"""

from collections.abc import Iterable

from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RunFinished,
    RunPaused,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)

BEGAN_S = 1_700_000_000.0
"""Unix time of the first event."""


def workunit(epoch: int, shard: int, attempt: int = 0, base: int = 0) -> str:
    return f"demo_e{epoch:04d}_s{shard:03d}_a{attempt}_v{base:06d}"


def applied(name: str, version: int, staleness: int = 0, samples: int = 100) -> UpdateApplied:
    return UpdateApplied(
        workunit=name, version=version, base_version=version - 1 - staleness, staleness=staleness, weight=0.5,
        samples=samples, fraction=1.0, train_s=1.5, loss=0.75, bytes_up=1000,
    )  # fmt: skip


def evaluated(
    version: int, epoch: int, measured: float, split: str = "validation", loss: float = 0.3
) -> VersionEvaluated:
    return VersionEvaluated(
        version, epoch, split, samples=50, loss=loss, evaluation_s=0.1, metrics={"accuracy": measured}
    )


def numbered(events: Iterable[Event]) -> list[Recorded]:
    """Events as a journal returns them, numbered from 1, all of time 0."""
    return [Recorded(number, 0.0, event) for number, event in enumerate(events, start=1)]


def recorded(events: list[tuple[float, Event]]) -> list[Recorded]:
    """Events with the seconds since the run's begin, as the journal returns them."""
    return [Recorded(number, BEGAN_S + time_s, event) for number, (time_s, event) in enumerate(events, start=1)]


FIRST_SESSION: list[tuple[float, Event]] = [
    (0, RunStarted(resumed=False)),
    (0, WorkunitCreated(workunit(1, 0))),
    (0, WorkunitCreated(workunit(1, 1))),
    (1, WorkunitSent(workunit(1, 0), "worker-1", 5000)),
    (1, WorkunitSent(workunit(1, 1), "worker-2", 5000)),
    (10, applied(workunit(1, 0), version=1)),
    (11, WorkunitFailed(workunit(1, 1), "the worker died (signal 9)")),
    (11, WorkunitCreated(workunit(1, 1, attempt=1, base=1))),
    (12, WorkunitSent(workunit(1, 1, attempt=1, base=1), "worker-1", 700)),
    (20, applied(workunit(1, 1, attempt=1, base=1), version=2)),
    (20, EpochClosed(1, 2)),
    (20, EvaluationWanted(1, 1, "validation")),
    (20, EvaluationWanted(2, 1, "validation")),
    (21, evaluated(1, 1, 0.5)),
    (22, evaluated(2, 1, 0.7)),
    (30, RunPaused("stop was requested")),
]
"""30 s of running time."""

SECOND_SESSION: list[tuple[float, Event]] = [
    (1000, RunStarted(resumed=True)),
    (1000, WorkunitCreated(workunit(2, 0, base=2))),
    (1000, WorkunitCreated(workunit(2, 1, base=2))),
    (1010, applied(workunit(2, 0, base=2), version=3, samples=80)),
    (1012, UpdateRefused(workunit(2, 1, base=2), "not_finite", "the weights hold NaN", 900)),
    (1012, WorkunitCreated(workunit(2, 1, attempt=1, base=3))),
    (1020, applied(workunit(2, 1, attempt=1, base=3), version=4, staleness=2)),
    (1020, EpochClosed(2, 4)),
    (1020, EvaluationWanted(4, 2, "validation")),
    (1021, UpdateSuperseded(workunit(2, 1, base=2), 950)),
    (1022, evaluated(4, 2, 0.8)),
    (1022, StopDecided("epochs", 4)),
    (1023, evaluated(4, 0, 0.79, "final_validation")),
    (1024, evaluated(4, 0, 0.77, "test")),
    (1025, RunFinished()),
]
"""25 s of running time."""

WHOLE_RUN = recorded([*FIRST_SESSION, *SECOND_SESSION])
