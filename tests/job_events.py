"""Events of a job named j. Their workunits are named by parts: "e1 s0 a2 v7" is the third attempt (a2) at shard 0 in
epoch 1, from the weights of version 7; a0 and v0 may be left out.
"""

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


def w(at: str = "e1 s0") -> str:
    """The name of a workunit."""
    parts = {"a": 0, "v": 0, **{part[0]: int(part[1:]) for part in at.split()}}
    return f"j_{subtask_name(parts['e'], parts['s'])}_a{parts['a']}_v{parts['v']:06d}"


def created(at: str = "e1 s0") -> WorkunitCreated:
    return WorkunitCreated(w(at))


def applied(at: str = "e1 s0", version: int = 1) -> UpdateApplied:
    """The upload of a workunit made this version."""
    base = WorkunitName.parse(w(at)).base_version
    return UpdateApplied(
        workunit=w(at), version=version, base_version=base, staleness=version - 1 - base, weight=0.05, samples=10,
        fraction=1.0, train_s=1.0, loss=0.5, bytes_up=100,
    )  # fmt: skip


def failed(at: str = "e1 s0") -> WorkunitFailed:
    return WorkunitFailed(w(at), "its worker died")


def cancelled(at: str = "e1 s0") -> WorkunitCancelled:
    return WorkunitCancelled(w(at))


def refused(at: str = "e1 s0") -> UpdateRefused:
    return UpdateRefused(w(at), "not_finite", "NaN", 100)


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
    subtasks = [f"e{number} s{shard} v{first}" for shard in range(shards)]
    come_back = [applied(at, version=first + made) for made, at in enumerate(subtasks, start=1)]
    end = first + shards
    return [
        *(created(at) for at in subtasks),
        *come_back,
        EpochClosed(number, end),
        wanted(end, number),
        evaluated(end, number, accuracy),
    ]
