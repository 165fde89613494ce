"""The events of a job, as frozen facts: the journal keeps them; coordinator and reports are computed from them.

An event with a `key` is in the journal only once, however often the same fact is delivered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from enum import StrEnum
from operator import index
from typing import Any, ClassVar

from vcdl.errors import JournalError
from vcdl.wire.workunit import WorkunitName

VALIDATION = "validation"
LOSS = "loss"
"""The name of the loss among the measures."""
ACCURACY = "accuracy"
FINAL_SPLITS = ("final_validation", "test")


class StopReason(StrEnum):
    """Why a job ended; in summary.json as `stop_reason`."""

    TARGET_ACCURACY = "target_accuracy"
    TARGET = "target"
    """The target of another measure."""
    EPOCHS = "epochs"
    NO_IMPROVEMENT = "no_improvement"
    WALL_TIME = "wall_time"
    SUBTASK_FAILED = "subtask_failed"
    """A shard was tried `tries` times in vain."""


@dataclass(frozen=True)
class Event:
    """A fact about a job; each kind of event is a subclass with its fields."""

    kind: ClassVar[str]

    @property
    def key(self) -> str | None:
        """The journal keeps one event of a key, the first; None: every such event is kept."""
        return None


@dataclass(frozen=True)
class RunStarted(Event):
    """A process took the job up, for the first time or again."""

    kind: ClassVar[str] = "run_started"
    resumed: bool
    monitor: str = ""
    """The measure by which the job is judged; empty: accuracy, or the loss where none is measured."""
    mode: str = ""
    """`max` or `min`: which way it is better."""


@dataclass(frozen=True)
class RunPaused(Event):
    """The process that ran the job ended cleanly; the job is not finished."""

    kind: ClassVar[str] = "run_paused"
    reason: str


@dataclass(frozen=True)
class SettingsChanged(Event):
    """Settings of the job were changed while it was open."""

    kind: ClassVar[str] = "settings_changed"
    changes: str
    """`boinc.share=3 boinc.deadline_s=900.0`"""


@dataclass(frozen=True)
class WorkunitCreated(Event):
    """A workunit exists from now on, whether or not the grid has been told."""

    kind: ClassVar[str] = "workunit_created"
    workunit: str
    open: int = 1
    """Open workunits at that moment, with all that were created together."""
    rate: float = 1.0
    """Its learning rate, as a factor of the job's peak."""

    @property
    def key(self) -> str:
        return self.key_of(self.workunit)

    @staticmethod
    def key_of(workunit: str) -> str:
        """The key of a workunit's creation."""
        return f"created:{workunit}"


@dataclass(frozen=True)
class WeightsPublished(Event):
    """A version of the weights was offered to clients that begin with a workunit of an older one."""

    kind: ClassVar[str] = "weights_published"
    version: int

    @property
    def key(self) -> str:
        return self.key_of(self.version)

    @staticmethod
    def key_of(version: int) -> str:
        """The key of a version's publication."""
        return f"published:{version}"


@dataclass(frozen=True)
class WorkunitSent(Event):
    """A client began with a workunit; it happens again when the grid lost the first client."""

    kind: ClassVar[str] = "workunit_sent"
    workunit: str
    host: str
    bytes_down: int
    """Size of the input files that this host did not have yet."""


@dataclass(frozen=True)
class WorkunitFailed(Event):
    """The grid gave a workunit up: its client died, refused or took too long."""

    kind: ClassVar[str] = "workunit_failed"
    workunit: str
    reason: str

    @property
    def key(self) -> str:
        return f"failed:{self.workunit}"


@dataclass(frozen=True)
class WorkunitCancelled(Event):
    """The server took a workunit back before it came to an end; its subtask is made again, and this was not a try."""

    kind: ClassVar[str] = "workunit_cancelled"
    workunit: str

    @property
    def key(self) -> str:
        return f"cancelled:{self.workunit}"


@dataclass(frozen=True)
class ResultRefused(Event):
    """An upload did not pass the checks, and the grid gives its workunit to another client.

    `refusal` is a name of vcdl.checks.Refusal.
    """

    kind: ClassVar[str] = "result_refused"
    workunit: str
    result: int
    """The result's number among those of the workunit."""
    refusal: str
    detail: str
    bytes_up: int
    host: str = ""
    """The host that brought it, as in UpdateApplied."""

    @property
    def key(self) -> str:
        return f"result_refused:{self.result}:{self.workunit}"


@dataclass(frozen=True)
class UpdateApplied(Event):
    """An upload was folded into the shared weights, which made `version` of them."""

    kind: ClassVar[str] = "update_applied"
    workunit: str
    version: int
    base_version: int
    staleness: int
    """Versions between the base and the weights it was folded into."""
    weight: float
    """The share that the rule gave to the client's weights, 1 − α."""
    samples: int
    fraction: float
    train_s: float | None
    """Seconds of training as the client tells; None: what it tells is not possible (vcdl.checks.claims)."""
    loss: float | None
    """Its mean training loss, likewise."""
    bytes_up: int
    host: str = ""
    """The host that brought it; empty: the one that the workunit was sent to last."""
    trust: float = 1.0
    """The factor on `fraction`, by what was known of the host."""
    rate: float = 1.0
    """The learning rate of its workunit, as a factor of the job's peak."""
    cosine: float | None = None
    """Cosine of its step with what the others brought meanwhile; None where clients are trusted."""
    reference_cosine: float | None = None
    """Cosine of its step with the server's own step on held-out data, likewise."""
    checksum: str = ""
    """The sum of the client's weights (vcdl.wire.checksum), if its upload is kept; "": unknown, as in a
    row that was made from the store's record."""
    times_s: dict[str, float] = field(default_factory=dict, hash=False)
    """Seconds of its stages as the client tells (vcdl.wire.workunit.STAGES); empty: not told, or not possible."""
    waited_s: float | None = None
    """Seconds from its coming to a server's turn: for validation, for a server, for those folded with it."""
    fold_s: float | None = None
    """Seconds that its server worked on it, of several uploads an equal part each; None: not known."""

    @property
    def key(self) -> str:
        return self.key_of(WorkunitName.parse(self.workunit).subtask)

    @staticmethod
    def key_of(subtask: str) -> str:
        """The key of a subtask's update."""
        return f"applied:{subtask}"


@dataclass(frozen=True)
class UpdateRefused(Event):
    """An upload did not pass the checks; `refusal` is a name of vcdl.checks.Refusal."""

    kind: ClassVar[str] = "update_refused"
    workunit: str
    refusal: str
    detail: str
    bytes_up: int
    host: str = ""
    """The host that brought it, as in UpdateApplied."""

    @property
    def key(self) -> str:
        return f"refused:{self.workunit}"


@dataclass(frozen=True)
class UpdateSuperseded(Event):
    """An upload came too late and was dropped: another attempt at the same subtask had been applied, or the job
    had gone back from the weights that it started from.
    """

    kind: ClassVar[str] = "update_superseded"
    workunit: str
    bytes_up: int
    host: str = ""
    """The host that brought it, as in UpdateApplied."""

    @property
    def key(self) -> str:
        return f"superseded:{self.workunit}"


@dataclass(frozen=True)
class UploadVerified(Event):
    """The server trained the subtask of an applied upload again, and compared the two (vcdl.loop.verification)."""

    kind: ClassVar[str] = "upload_verified"
    workunit: str
    host: str
    """The host that brought it."""
    up_to: int
    """The newest version when it was drawn: a good upload speaks for all that its host had brought by then."""
    apart: float
    """The distance of the two, as a share of the longer step."""
    agrees: bool
    """Whether two honest computers may differ so much."""
    train_s: float
    """Seconds that the server trained."""

    @property
    def key(self) -> str:
        return f"verified:{self.workunit}"


@dataclass(frozen=True)
class HostConvicted(Event):
    """A host brought something else than the result of its subtask: nothing of it counts from now on."""

    kind: ClassVar[str] = "host_convicted"
    host: str
    workunit: str
    """The upload that shows it."""
    versions: tuple[int, ...]
    """The versions that its uploads made since the last one that was found good: they are taken back."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", tuple(map(index, self.versions)))  # JSON knows lists only

    @property
    def key(self) -> str:
        return f"convicted:{self.host}"


@dataclass(frozen=True)
class EvaluationWanted(Event):
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
class VersionEvaluated(Event):
    """A version of the weights was measured on a split."""

    kind: ClassVar[str] = "version_evaluated"
    version: int
    epoch: int
    split: str
    samples: int
    loss: float
    evaluation_s: float
    metrics: dict[str, float] = field(default_factory=dict, hash=False)
    """The job's metrics by their names."""

    @property
    def key(self) -> str:
        return f"evaluated:{self.split}:{self.version}"

    @property
    def accuracy(self) -> float | None:
        """The accuracy; None where none is measured."""
        return self.metrics.get(ACCURACY)

    @property
    def measures(self) -> dict[str, float]:
        """The loss and all metrics by their names."""
        return {LOSS: self.loss, **self.metrics}


@dataclass(frozen=True)
class EvaluatorDied(Event):
    """The process that measures ended against its will, and is started again; training goes on meanwhile."""

    kind: ClassVar[str] = "evaluator_died"
    reason: str


@dataclass(frozen=True)
class EpochClosed(Event):
    """Every shard of the epoch was applied; the snapshot of `version` is its end."""

    kind: ClassVar[str] = "epoch_closed"
    epoch: int
    version: int
    lost: int = 0
    """Updates that other servers overwrote since the job began: in an `eventual` store only."""

    @property
    def key(self) -> str:
        return f"epoch:{self.epoch}"


@dataclass(frozen=True)
class RolledBack(Event):
    """The weights had collapsed, or a host is convicted: `version` is the good version `to` with the later updates but
    the dropped ones.

    The store follows: who finds it behind `version` makes that version, always the same one (vcdl.loop.recovery).
    """

    kind: ClassVar[str] = "rolled_back"
    version: int
    to: int
    dropped: tuple[int, ...]
    """The versions that the dropped updates had made. Their subtasks count as done."""
    collapsed: int
    """The version whose measure showed it; of a convicted host the newest."""
    measured: float
    """The measure that the job is judged by; 0 where a host was convicted."""
    usual: float
    """The median of the measures before it."""
    host: str = ""
    """The convicted host whose uploads are dropped; empty: the weights had collapsed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dropped", tuple(map(index, self.dropped)))  # JSON knows lists only

    @property
    def key(self) -> str:
        return f"rolled_back:{self.collapsed}{self.host and ':' + self.host}"

    def undoes(self, version: int) -> bool:
        """Whether a version is one that the job went back from."""
        return self.to < version < self.version

    def overtakes(self, version: int) -> bool:
        """Whether what started from a version is dropped; what started from one with a convicted host's uploads in it
        still counts, as it was honestly trained.
        """
        return not self.host and self.undoes(version)

    def overtaken(self, workunits: Mapping[str, WorkunitName]) -> list[str]:
        """Those workunits that are."""
        return [workunit for workunit, name in workunits.items() if self.overtakes(name.base_version)]


@dataclass(frozen=True)
class StopDecided(Event):
    """The job ends: it takes no more updates, and `version` is its result."""

    kind: ClassVar[str] = "stop_decided"
    reason: str
    version: int
    lost: int = 0
    """Updates that another server overwrote, as in EpochClosed."""


@dataclass(frozen=True)
class StoreRestored(Event):
    """The store had lost its weights, or came back older: `version` was put there, with every update up to it of which
    there is a row, and no others.
    """

    kind: ClassVar[str] = "store_restored"
    version: int
    folded_again: int
    """Updates that were folded in again, after the snapshot that it began with."""
    twice: int = 0
    """Updates in that snapshot of which there is no row: they may be brought again, and then count twice."""


@dataclass(frozen=True)
class RowsRewritten(Event):
    """The store knew of updates that the journal had lost, as when an older copy of it was put back: so many rows of
    them follow, from the store's records. The snapshot of `version` has all of them.
    """

    kind: ClassVar[str] = "rows_rewritten"
    version: int
    rows: int
    lost: int = 0
    """Updates that another server overwrote, as in EpochClosed."""


@dataclass(frozen=True)
class FilesChecked(Event):
    """After a reboot, so many files of weights were read and held to their checksums, beside the store's weights."""

    kind: ClassVar[str] = "files_checked"
    boot: str
    files: int
    damaged: str = ""
    """Names of the damaged ones, which were removed: `params_v000012.h5 state_v000012.h5`."""


@dataclass(frozen=True)
class RunFinished(Event):
    """Everything that was wanted has been evaluated."""

    kind: ClassVar[str] = "run_finished"


@dataclass(frozen=True)
class RunReopened(Event):
    """A job that ended because a subtask kept failing is tried again; the cause may have been mended."""

    kind: ClassVar[str] = "run_reopened"


_BY_KIND = {event.kind: event for event in Event.__subclasses__()}
_OF_JSON: dict[Any, frozenset[type]] = {
    bool: frozenset({bool}),
    int: frozenset({int}),
    float: frozenset({float, int}),
    float | None: frozenset({float, int, type(None)}),
    str: frozenset({str}),
    tuple[int, ...]: frozenset({list}),
    dict[str, float]: frozenset({dict}),
}
"""The types that JSON has for the type of a field."""
_TYPES = {kind: {field.name: _OF_JSON[field.type] for field in fields_of(event)} for kind, event in _BY_KIND.items()}
_FORMS: dict[tuple[object, ...], tuple[str, ...]] = {}
"""Kinds with names and types of fields that are right, and which of the fields are whole numbers."""


@dataclass(frozen=True)
class Recorded:
    """An event with its place and time in the journal."""

    id: int
    time_s: float
    """Unix time."""
    event: Event


def encode(event: Event) -> dict[str, Any]:
    """The event's fields, for JSON."""
    return dict(vars(event))


def decode(kind: str, fields: dict[str, Any]) -> Event:
    """The event of a kind, from its fields.

    Raises JournalError when this version of vcdl does not know the kind or a field, or when a value is of another type.
    """
    try:
        if kind == VersionEvaluated.kind:
            fields = _with_metrics(fields)
        elif kind == UpdateApplied.kind:
            _check_numbers(kind, fields.get("times_s"))
        form = (kind, *fields, *map(type, fields.values()))
        if form not in _FORMS:
            _FORMS[form] = _whole_numbers(kind, fields)
        for name in _FORMS[form]:
            if not -(2**63) <= fields[name] < 2**63:
                raise _damaged(kind, name, fields[name])
        return _BY_KIND[kind](**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise JournalError(
            f"the journal holds an event {kind!r} that this version does not know ({error}): "
            "go on with the version of vcdl that began the run"
        ) from error


def _whole_numbers(kind: str, fields: dict[str, Any]) -> tuple[str, ...]:
    """The fields that are whole numbers, if all fields are of the right type.

    Raises JournalError, and KeyError for a kind or a field that is not known.
    """
    types = _TYPES[kind]
    for name, value in fields.items():
        if type(value) not in types[name]:
            raise _damaged(kind, name, value)
    return tuple(name for name, value in fields.items() if type(value) is int)


def _with_metrics(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an evaluation; older journals hold an accuracy in place of metrics. Raises JournalError."""
    if ACCURACY in fields:
        accuracy = fields[ACCURACY]
        fields = {name: value for name, value in fields.items() if name != ACCURACY}
        fields["metrics"] = {} if accuracy is None else {ACCURACY: accuracy}
    _check_numbers(VersionEvaluated.kind, fields.get("metrics"))
    return fields


def _check_numbers(kind: str, values: object) -> None:
    """Raises JournalError for an object that holds something else than numbers."""
    for name, value in values.items() if isinstance(values, dict) else ():
        if type(value) not in _OF_JSON[float]:
            raise _damaged(kind, name, value)


def _damaged(kind: str, name: str, value: object) -> JournalError:
    return JournalError(
        f"the journal is damaged: {name[:60]!r} of an event {kind!r} is {str(value)[:60]!r}; put a copy of it back"
    )
