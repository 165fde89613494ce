"""The events of a job. The journal stores them, and the coordinator and reports compute their state from them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from vcdl.wire.task import ACCURACY, LOSS
from vcdl.wire.workunit import WorkunitName

VALIDATION = "validation"
FINAL_SPLITS = ("final_validation", "test")

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number that SQLite and NumPy can hold."""


class StopReason(StrEnum):
    """The reason for which a job ended: `stop_reason` in summary.json."""

    TARGET_ACCURACY = "target_accuracy"
    TARGET = "target"  # the monitor reached `stop > target`
    EPOCHS = "epochs"
    NO_IMPROVEMENT = "no_improvement"
    WALL_TIME = "wall_time"
    SUBTASK_FAILED = "subtask_failed"  # a shard was tried `tries` times and always failed


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A fact about a job; each kind of event is a subclass with its fields."""

    kind: ClassVar[str]
    keyed_by: ClassVar[tuple[str, ...]] = ()
    """The prefix of the key, and the names of the fields that complete it; empty if the event has no key."""

    @property
    def key(self) -> str | None:
        """The event's key: the journal stores only the first event with a key. If None, every event is stored."""
        return self.key_of(*(getattr(self, name) for name in self.keyed_by[1:])) if self.keyed_by else None

    @classmethod
    def key_of(cls, *fields: object) -> str:
        """Return the key of an event, given the values of its fields in `keyed_by`, in order."""
        return ":".join((cls.keyed_by[0], *map(str, fields)))


class RunStarted(Event, frozen=True, tag="run_started"):
    """A process started to drive the job, for the first time or again."""

    resumed: bool
    monitor: str = ""
    """The metric by which the job is judged. If empty, accuracy, or the loss if no accuracy is measured."""
    mode: str = ""
    """Whether the monitor should be high or low: `max` or `min`."""
    rate_trial: str = ""
    """The result of trying learning rates before the job (vcdl.job.lr_schedule.RateTrial)."""


class RunPaused(Event, frozen=True, tag="run_paused"):
    """The process that ran the job ended cleanly; the job is not finished."""

    reason: str


class SettingsChanged(Event, frozen=True, tag="settings_changed"):
    """Settings of the job were changed while it was open."""

    changes: str
    """The new values, separated by spaces: `boinc.share=3 boinc.deadline_s=900.0`."""


class WorkunitCreated(Event, frozen=True, tag="workunit_created"):
    """A workunit exists from now on, whether or not the grid has received it."""

    keyed_by: ClassVar = "created", "workunit"
    workunit: str
    open: Int = 1
    """Open workunits at that moment, including all that were created together."""
    rate: float = 1.0
    """The workunit's learning rate, as a factor of the job's peak."""
    begins: Int | None = None
    """Samples of its shard that were already trained, if subtasks end by time."""


class WeightsPublished(Event, frozen=True, tag="weights_published"):
    """A version of the weights was offered to clients, which may start from it instead of their workunit's base."""

    keyed_by: ClassVar = "published", "version"
    version: Int


class WorkunitSent(Event, frozen=True, tag="workunit_sent"):
    """A client started a workunit. If the grid loses this client, another event follows for the next one."""

    workunit: str
    host: str
    bytes_down: Int
    """Size of the input files that this host did not have yet."""


class WorkunitFailed(Event, frozen=True, tag="workunit_failed"):
    """The grid gave a workunit up: its client died, refused it or took too long."""

    keyed_by: ClassVar = "failed", "workunit"
    workunit: str
    reason: str


class WorkunitCancelled(Event, frozen=True, tag="workunit_cancelled"):
    """The server cancelled a workunit before it ended. Its subtask is reissued, which does not count as a try."""

    keyed_by: ClassVar = "cancelled", "workunit"
    workunit: str


class ResultRefused(Event, frozen=True, tag="result_refused"):
    """An upload did not pass the checks, and the same workunit is sent to another client."""

    keyed_by: ClassVar = "result_refused", "result", "workunit"
    workunit: str
    result: Int
    """The result's number among those of the workunit."""
    refusal: str
    """The reason: the name of a Refusal in vcdl.errors.refusal."""
    detail: str
    bytes_up: Int
    host: str = ""
    """The host that uploaded it, as in UpdateApplied."""


class UpdateApplied(Event, frozen=True, tag="update_applied"):
    """An upload was applied to the shared weights, which made version `version`."""

    keyed_by: ClassVar = "applied", "subtask"
    workunit: str
    version: Int
    base_version: Int
    staleness: Int
    """Number of versions between its base and the weights that it was applied to."""
    weight: float
    """The weight that the rule gave to the client's weights, 1 − α."""
    samples: Int
    fraction: float
    """The fraction of its subtask that was trained."""
    train_s: float | None
    """Seconds of training as the client reports them, or None if its claim is impossible (vcdl.checks.claims)."""
    loss: float | None
    """Mean training loss as the client reports it, or None if its claim is impossible."""
    bytes_up: Int
    host: str = ""
    """The host that uploaded it, or an empty string for the last host that the workunit was sent to."""
    trust: float = 1.0
    """The factor by which it counts less because of the trust in its host, from 0 to 1."""
    rate: float = 1.0
    """The learning rate of its workunit, as a factor of the job's peak."""
    cosine: float | None = None
    """Cosine of its step with the shared weights' movement since its base. None without one, or if all are trusted."""
    reference_cosine: float | None = None
    """Cosine of its step with the server's own step on held-out data. None without one, or if all are trusted."""
    checksum: str = ""
    """The checksum of the client's weights (vcdl.wire.checksum) if its upload is kept, otherwise ""."""
    times_s: dict[str, float] = {}
    """Seconds by stage, as the client reports them (vcdl.wire.workunit.STAGES). Empty if unknown or implausible."""
    waited_s: float | None = None
    """Seconds from arrival to application, without `fold_s`: for validation, server and batch. None if unknown."""
    backend: str = ""
    """The Keras backend of the client; empty in older journals."""
    machine: str = ""
    """The client's own description of its machine. Empty if its server has already recorded the same for this host."""
    is_part: bool = False
    """The client trained only part of the subtask although it had time left, so the subtask is reissued."""
    fold_s: float | None = None
    """Seconds that its parameter server worked on it: an equal part of its batch's time. None if unknown."""

    @property
    def subtask(self) -> str:
        """The subtask of its workunit: `e0003_s017`."""
        return WorkunitName.parse(self.workunit).subtask


class UpdateRefused(Event, frozen=True, tag="update_refused"):
    """An upload did not pass the checks, and its subtask is reissued as another workunit."""

    keyed_by: ClassVar = "refused", "workunit"
    workunit: str
    refusal: str
    """The reason: the name of a Refusal in vcdl.errors.refusal."""
    detail: str
    bytes_up: Int
    host: str = ""
    """The host that uploaded it, as in UpdateApplied."""


class UpdateSuperseded(Event, frozen=True, tag="update_superseded"):
    """An upload came too late: another attempt was applied, or a rollback undid the weights that it started from."""

    keyed_by: ClassVar = "superseded", "workunit"
    workunit: str
    bytes_up: Int
    host: str = ""
    """The host that uploaded it, as in UpdateApplied."""


class UploadVerified(Event, frozen=True, tag="upload_verified"):
    """The server retrained the subtask of an applied upload, and compared the two (vcdl.trust.verification)."""

    keyed_by: ClassVar = "verified", "workunit"
    workunit: str
    host: str
    up_to: Int
    """The newest version when it was drawn. If it agrees, all uploads of its host up to it count as verified."""
    apart: float
    """The distance between the client's and the server's result, as a fraction of the longer step."""
    agrees: bool
    """Whether rounding alone could explain the distance."""
    train_s: float
    is_comparable: bool = True
    """False if the model draws random numbers and the client's backend draws different ones than the server's."""
    was_strange: bool = False
    """Whether it was retrained because it looked suspicious. Hosts can choose that, so it vouches for no other."""


class VerificationEnded(Event, frozen=True, tag="verification_ended"):
    """All epochs are closed, and no upload up to `version` has to be retrained before the job may end."""

    keyed_by: ClassVar = "verification_ended", "version"
    version: Int


class SubtaskTried(Event, frozen=True, tag="subtask_tried"):
    """The server trained a subtask at which hosts kept failing."""

    workunit: str
    error: str
    """The reason why the server failed, too, which ends the job. Empty: its update waits to be applied."""
    train_s: float


class HostConvicted(Event, frozen=True, tag="host_convicted"):
    """A host uploaded something other than the result of its subtask: quarantined once, then banned (`for_good`)."""

    keyed_by: ClassVar = "convicted", "host", "workunit"
    host: str
    workunit: str
    """The workunit whose upload shows it."""
    versions: tuple[Int, ...]
    """The versions of its uploads after the last one found good; a rollback removes them from the weights."""
    again: tuple[str, ...] = ()
    """The workunits of everything that it has uploaded since then; their subtasks are reissued."""
    for_good: bool = True
    """Whether the host is banned. Otherwise it is quarantined."""


class EvaluationWanted(Event, frozen=True, tag="evaluation_wanted"):
    """A version of the weights has a snapshot, and waits to be evaluated."""

    keyed_by: ClassVar = "wanted", "split", "version"
    version: Int
    epoch: Int
    split: str
    """`validation`, or `final_validation` and `test` (both whole) once the job has ended."""


class VersionEvaluated(Event, frozen=True, tag="version_evaluated"):
    """A version of the weights was evaluated on a split."""

    keyed_by: ClassVar = "evaluated", "split", "version"
    version: Int
    epoch: Int
    split: str
    samples: Int
    loss: float
    evaluation_s: float
    metrics: dict[str, float] = {}
    """Metric's name → its value."""

    @property
    def accuracy(self) -> float | None:
        """The accuracy, or None if none is measured."""
        return self.metrics.get(ACCURACY)

    @property
    def measures(self) -> dict[str, float]:
        """The loss and all metrics, by name."""
        return {LOSS: self.loss, **self.metrics}


class EvaluatorDied(Event, frozen=True, tag="evaluator_died"):
    """The evaluator died and is restarted; training continues in the meantime."""

    reason: str


class EpochClosed(Event, frozen=True, tag="epoch_closed"):
    """Every shard of the epoch was applied; the snapshot of `version` is its end."""

    keyed_by: ClassVar = "epoch", "epoch"
    epoch: Int
    version: Int
    lost: Int = 0
    """Updates of the job that other servers overwrote: 0 except in an `eventual` store."""


class RolledBack(Event, frozen=True, tag="rolled_back"):
    """The job went back to version `to`, applied later updates again except some, and so made `version`."""

    version: Int
    to: Int
    dropped: tuple[Int, ...]
    """The versions that the dropped updates made. Their subtasks stay applied."""
    collapsed: Int
    """The version whose evaluation showed a collapse, or the newest version if a host was convicted."""
    measured: float
    """The monitor's value at that version, or 0 if a host was convicted."""
    usual: float
    """The median of the monitor's values before."""
    host: str = ""
    """The convicted host whose uploads are dropped, or an empty string after a collapse."""
    again: tuple[str, ...] = ()
    """The workunits of honest updates that are also dropped; their subtasks are reissued."""

    @property
    def key(self) -> str:
        return f"rolled_back:{self.collapsed}{self.host and ':' + self.host}"

    def undoes(self, version: int) -> bool:
        """Return whether the rollback replaced a version, so that its evaluations no longer count."""
        return self.to < version < self.version

    def overtakes(self, version: int) -> bool:
        """Return whether uploads that started from a version are dropped, because it contains a dropped update."""
        return min(self.dropped, default=self.to + 1) <= version < self.version

    def overtaken(self, names: Mapping[str, WorkunitName]) -> list[str]:
        """Return the names of the workunits whose base version contains a dropped update, from a dict by name."""
        return [workunit for workunit, name in names.items() if self.overtakes(name.base_version)]


class StopDecided(Event, frozen=True, tag="stop_decided"):
    """The job ends: it applies no more updates, and `version` is its result."""

    reason: str
    version: Int
    lost: Int = 0
    """Updates that another server overwrote, as in EpochClosed."""


class StoreRestored(Event, frozen=True, tag="store_restored"):
    """Recovery restores a store as `version`, above all earlier ones. This is recorded before the store is written."""

    keyed_by: ClassVar = "store_restored", "version"
    version: Int
    folded_again: Int
    """Number of updates that were applied again, after the snapshot that recovery started from."""
    twice: Int = 0
    """Updates in that snapshot without a row. Their hosts may upload them again, and they are then applied twice."""
    lost: Int | None = None
    """As in EpochClosed. None in older journals, where `version` repeats the number of the newest update."""


class RowsRewritten(Event, frozen=True, tag="rows_rewritten"):
    """The journal lacked updates, because it is an older copy. `rows` rows follow, all in the snapshot of `version`."""

    version: Int
    rows: Int
    lost: Int = 0
    """Updates that another server overwrote, as in EpochClosed."""


class FilesChecked(Event, frozen=True, tag="files_checked"):
    """After a reboot, the store's weights and the run's files were verified against their checksums."""

    boot: str
    """The id of the boot."""
    files: Int
    damaged: str = ""
    """Names of the damaged files, which were removed: `params_v000012.h5 state_v000012.h5`."""


class RunFinished(Event, frozen=True, tag="run_finished"):
    """Every evaluation that was requested is done."""


class RunReopened(Event, frozen=True, tag="run_reopened"):
    """A job that ended because a subtask kept failing is retried, since the cause may have been fixed."""


class Recorded(msgspec.Struct, frozen=True):
    """An event with its id and time in the journal."""

    id: Int
    time_s: float
    """Unix time."""
    event: Event


KINDS = {str(event.__struct_config__.tag): event for event in Event.__subclasses__()}
for _kind, _event in KINDS.items():
    _event.kind = _kind
