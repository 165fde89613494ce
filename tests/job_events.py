"""Events of a job named j, by epoch, shard, attempt and base version of their workunit."""

from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    UpdateApplied,
    UpdateRefused,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.wire.workunit import WorkunitName, subtask_name

OWN = 1_000_000_000
"""Added to the number of an attempt of the server's own."""


def w(epoch: int = 1, shard: int = 0, attempt: int = 0, base: int = 0) -> str:
    return f"j_{subtask_name(epoch, shard)}_a{attempt}_v{base:06d}"


def created(*at: int) -> WorkunitCreated:
    return WorkunitCreated(w(*at))


def applied(version: int, *at: int) -> UpdateApplied:
    base = WorkunitName.parse(w(*at)).base_version
    return UpdateApplied(
        workunit=w(*at), version=version, base_version=base, staleness=version - 1 - base, weight=0.05, samples=10,
        fraction=1.0, train_s=1.0, loss=0.5, bytes_up=100,
    )  # fmt: skip


def failed(*at: int) -> WorkunitFailed:
    return WorkunitFailed(w(*at), "its worker died")


def cancelled(*at: int) -> WorkunitCancelled:
    return WorkunitCancelled(w(*at))


def refused(*at: int) -> UpdateRefused:
    return UpdateRefused(w(*at), "not_finite", "NaN", 100)


def wanted(version: int, epoch: int, split: str = "validation") -> EvaluationWanted:
    return EvaluationWanted(version, epoch, split)


def evaluated(version: int, epoch: int, accuracy: float = 0.5, split: str = "validation") -> VersionEvaluated:
    return VersionEvaluated(
        version=version, epoch=epoch, split=split, samples=100, loss=0.4, evaluation_s=0.1,
        metrics={"accuracy": accuracy},
    )  # fmt: skip


def an_epoch(number: int, accuracy: float = 0.5, shards: int = 1) -> list[Event]:
    """All that happens in an epoch of one shard, or of `shards` that come back in order, validated at its end."""
    first = (number - 1) * shards
    subtasks = [(number, shard, 0, first) for shard in range(shards)]
    come_back = [applied(first + made, *at) for made, at in enumerate(subtasks, start=1)]
    end = first + shards
    return [
        *(created(*at) for at in subtasks),
        *come_back,
        EpochClosed(number, end),
        wanted(end, number),
        evaluated(end, number, accuracy),
    ]
