"""What happens to a job, as frozen facts: the journal keeps them, the coordinator and every report are folded from them.

An event with a `key` can be in the journal only once, however often the same fact is delivered.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from vcdl.errors import JournalError
from vcdl.workunit import WorkunitName


@dataclass(frozen=True)
class RunStarted:
    """A process took the job up, for the first time or again."""

    kind: ClassVar[str] = "run_started"
    resumed: bool

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True)
class RunPaused:
    """The process that ran the job ended cleanly; the job is not finished."""

    kind: ClassVar[str] = "run_paused"
    reason: str

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True)
class WorkunitCreated:
    kind: ClassVar[str] = "workunit_created"
    workunit: str
    open: int = 1
    """Workunits that are open then, with all that are made at the same moment."""

    @property
    def key(self) -> str:
        return f"created:{self.workunit}"


@dataclass(frozen=True)
class WorkunitSent:
    """A client began with a workunit; again, when the grid lost the first client."""

    kind: ClassVar[str] = "workunit_sent"
    workunit: str
    host: str
    bytes_down: int
    """Of the input files that this host did not have yet."""

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True)
class WorkunitFailed:
    """The grid gave a workunit up: its client died, refused or took too long."""

    kind: ClassVar[str] = "workunit_failed"
    workunit: str
    reason: str

    @property
    def key(self) -> str:
        return f"failed:{self.workunit}"


@dataclass(frozen=True)
class WorkunitCancelled:
    """We took a workunit back before it came to an end: its subtask is made again, and this was not a try."""

    kind: ClassVar[str] = "workunit_cancelled"
    workunit: str

    @property
    def key(self) -> str:
        return f"cancelled:{self.workunit}"


@dataclass(frozen=True)
class ResultRefused:
    """An upload did not pass the checks, and the grid gives its workunit to another client; `refusal` is a name of vcdl.checks.Refusal."""

    kind: ClassVar[str] = "result_refused"
    workunit: str
    result: int
    """Its number among those of the workunit."""
    refusal: str
    detail: str
    bytes_up: int

    @property
    def key(self) -> str:
        return f"result_refused:{self.result}:{self.workunit}"


@dataclass(frozen=True)
class UpdateApplied:
    """An upload was folded into the shared weights, which made `version` of them."""

    kind: ClassVar[str] = "update_applied"
    workunit: str
    version: int
    base_version: int
    staleness: int
    """Versions between the base and the weights it was folded into."""
    weight: float
    """Given to the client's weights by the rule, 1 − α."""
    samples: int
    fraction: float
    train_s: float
    loss: float
    bytes_up: int

    @property
    def key(self) -> str:
        return f"applied:{WorkunitName.parse(self.workunit).subtask}"


@dataclass(frozen=True)
class UpdateRefused:
    """An upload did not pass the checks; `refusal` is a name of vcdl.checks.Refusal."""

    kind: ClassVar[str] = "update_refused"
    workunit: str
    refusal: str
    detail: str
    bytes_up: int

    @property
    def key(self) -> str:
        return f"refused:{self.workunit}"


@dataclass(frozen=True)
class UpdateSuperseded:
    """An upload came after another attempt at the same subtask had been applied: dropped."""

    kind: ClassVar[str] = "update_superseded"
    workunit: str
    bytes_up: int

    @property
    def key(self) -> str:
        return f"superseded:{self.workunit}"


@dataclass(frozen=True)
class EvaluationWanted:
    """A version of the weights, kept as a snapshot, waits to be evaluated."""

    kind: ClassVar[str] = "evaluation_wanted"
    version: int
    epoch: int
    split: str
    """`validation`, or `final_validation` and `test` (both whole) once the job has ended."""

    @property
    def key(self) -> str:
        return f"wanted:{self.split}:{self.version}"


@dataclass(frozen=True)
class VersionEvaluated:
    kind: ClassVar[str] = "version_evaluated"
    version: int
    epoch: int
    split: str
    samples: int
    loss: float
    accuracy: float | None
    """None for a regression."""
    evaluation_s: float

    @property
    def key(self) -> str:
        return f"evaluated:{self.split}:{self.version}"

    @property
    def score(self) -> float:
        """The larger the better: accuracy, or the negative loss of a regression; a model that diverged (NaN) is the worst."""
        score = -self.loss if self.accuracy is None else self.accuracy
        return -math.inf if math.isnan(score) else score


@dataclass(frozen=True)
class EpochClosed:
    """Each shard of the epoch was applied; `version` is the snapshot kept of its end."""

    kind: ClassVar[str] = "epoch_closed"
    epoch: int
    version: int
    lost: int = 0
    """Updates that were overwritten since the job began: in an `eventual` store only."""

    @property
    def key(self) -> str:
        return f"epoch:{self.epoch}"


@dataclass(frozen=True)
class StopDecided:
    """No more updates: `version` is what the job made."""

    kind: ClassVar[str] = "stop_decided"
    reason: str
    version: int
    lost: int = 0
    """As in EpochClosed."""

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True)
class RunFinished:
    """Everything that was asked for has been evaluated."""

    kind: ClassVar[str] = "run_finished"

    @property
    def key(self) -> None:
        return None


@dataclass(frozen=True)
class RunReopened:
    """A job that ended because a subtask kept failing is tried again: the cause may have been mended."""

    kind: ClassVar[str] = "run_reopened"

    @property
    def key(self) -> None:
        return None


Event = (
    RunStarted
    | RunPaused
    | WorkunitCreated
    | WorkunitSent
    | WorkunitFailed
    | WorkunitCancelled
    | ResultRefused
    | UpdateApplied
    | UpdateRefused
    | UpdateSuperseded
    | EvaluationWanted
    | VersionEvaluated
    | EpochClosed
    | StopDecided
    | RunFinished
    | RunReopened
)

_BY_KIND: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__args__}


@dataclass(frozen=True)
class Recorded:
    """An event with its place and time in the journal."""

    id: int
    time_s: float
    """Unix time."""
    event: Event


def encode(event: Event) -> dict[str, Any]:
    """The event's fields, for JSON."""
    return asdict(event)


def decode(kind: str, fields: dict[str, Any]) -> Event:
    """Raises JournalError when this version does not know the kind or its fields."""
    try:
        return _BY_KIND[kind](**fields)
    except (KeyError, TypeError) as error:
        raise JournalError(
            f"the journal holds an event {kind!r} that this version does not know ({error}): "
            "go on with the version of vcdl that began the run"
        ) from error
