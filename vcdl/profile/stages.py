"""The stages of subtasks, computed from a run's journal; they sum to the time from creation to application."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from vcdl.journal.events import (
    EpochClosed,
    Recorded,
    ResultRefused,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    VersionEvaluated,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.history import JobHistory
from vcdl.wire.workunit import STAGES as CLIENT_STAGES
from vcdl.wire.workunit import WorkunitName

QUEUE, AWAY, TRAIN, SERVER, FOLD = "queue", "away", "train", "server", "fold"
STAGES = (
    QUEUE,
    AWAY,
    "host",
    "start",
    "build",
    "prepare",
    "first",
    TRAIN,
    "paused",
    "checkpoint",
    "write",
    SERVER,
    FOLD,
)
MEANINGS: Mapping[str, str] = {
    QUEUE: "created, waiting to be sent",
    AWAY: "in transfer: download, writing, upload, report",
    "host": "on the host, waiting for its process",
    "start": "the process starts and imports Keras",
    "build": "the model is built, in a process that has none",
    "prepare": "data and weights are read",
    "first": "the first batch, where the model is compiled",
    TRAIN: "the other batches",
    "paused": "suspended or throttled",
    "checkpoint": "checkpoints",
    "write": "weights are copied from the device",
    SERVER: "waiting for validation and a parameter server",
    FOLD: "checked and folded in",
}
OF_HOST = ("start", "build", "prepare", "first", TRAIN, "paused", "checkpoint", "write")
"""The stages in which a subtask occupies its host."""
ONCE = ("build", "first")
"""Stages that a process has once, before its first subtask."""
_NOTICED_S = 2.0
"""Seconds by which the server may notice a start too late."""
_Ended = UpdateRefused | ResultRefused | UpdateSuperseded | WorkunitFailed | WorkunitCancelled
LOST, REFUSED, SUPERSEDED, CANCELLED = "lost", "refused", "superseded", "cancelled"


@dataclass
class StageSums:
    """Sums over subtasks whose update was applied."""

    subtasks: int = 0
    samples: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    told: int = 0
    """Number of subtasks whose client reported plausible times of its stages."""
    compiled: int = 0
    """Number of subtasks that were the first of their process."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage → seconds over all subtasks."""

    def add(self, other: "StageSums") -> None:
        """Add the sums over other subtasks."""
        self.subtasks += other.subtasks
        self.samples += other.samples
        self.bytes_up += other.bytes_up
        self.bytes_down += other.bytes_down
        self.told += other.told
        self.compiled += other.compiled
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def mean_s(self, *stages: str) -> float:
        """Return the mean seconds of a subtask in the given stages together; without arguments, in all stages."""
        return sum(self.seconds.get(stage, 0.0) for stage in stages or STAGES) / max(1, self.subtasks)


@dataclass
class EpochMeans:
    """The mean time of a host's subtasks in each epoch, as sums over the closed epochs, so that it does not grow."""

    epochs: int = 0
    """Number of closed epochs with a subtask of the host."""
    sum_s: float = 0.0
    sum_of_squares: float = 0.0
    open: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Epoch → number of its subtasks, and their seconds."""

    def add(self, epoch: int, seconds: float) -> None:
        """Add a subtask of an epoch, which took this many seconds."""
        count, before_s = self.open.get(epoch, (0, 0.0))
        self.open[epoch] = count + 1, before_s + seconds

    def close(self, epoch: int) -> None:
        """Record that an epoch has ended, and reduce it to sums."""
        if counted := self.open.pop(epoch, None):
            mean_s = counted[1] / counted[0]
            self.epochs += 1
            self.sum_s += mean_s
            self.sum_of_squares += mean_s * mean_s

    def moments(self) -> tuple[int, float, float]:
        """Return the number of epochs, including open ones, the sum of their mean seconds, and that of the squares."""
        means = [seconds / count for count, seconds in self.open.values()]
        squares = self.sum_of_squares + sum(mean * mean for mean in means)
        return self.epochs + len(means), self.sum_s + sum(means), squares


@dataclass
class HostUse:
    """Which workunits a host has, and for how long it had any. Times are active seconds of the run."""

    out: dict[str, float] = field(default_factory=dict)
    """Workunit that the host has → active seconds at which it got the workunit."""
    most_out: int = 0
    """Most workunits that it ever had at once."""
    busy_s: float = 0.0
    """Seconds in which it had any workunit, up to the last time that it had none."""
    first_s: float | None = None
    """Active seconds at which it got its first workunit, or None if it got none."""
    last_s: float = 0.0
    """Active seconds of its last event."""
    machine: str = ""
    """The last description of the machine by its client; empty if there is none, as from older clients."""
    backend: str = ""
    _since_s: float = 0.0
    """Active seconds since which it has had a workunit, while it has one."""

    def takes(self, workunit: str, now_s: float) -> None:
        """Record that the host got a workunit, at `now_s` active seconds."""
        if not self.out:
            self._since_s = now_s
        self.first_s = now_s if self.first_s is None else self.first_s
        self.out[workunit] = now_s
        self.most_out = max(self.most_out, len(self.out))
        self.last_s = now_s

    def ends(self, workunit: str, now_s: float) -> None:
        """Record that the host no longer has a workunit; do nothing if it did not have this one."""
        if self.out.pop(workunit, None) is None:
            return
        self.last_s = now_s
        if not self.out:
            # Only when it has none left, as a host may have several at a time.
            self.busy_s += now_s - self._since_s

    @property
    def active_s(self) -> float:
        """Seconds between its first and its last event."""
        return 0.0 if self.first_s is None else self.last_s - self.first_s

    @property
    def at_work_s(self) -> float:
        """Seconds in which it had a workunit."""
        return self.busy_s + (self.last_s - self._since_s if self.out else 0.0)

    @property
    def idle_s(self) -> float:
        """Seconds between its first and last event in which it had no workunit."""
        return max(0.0, self.active_s - self.at_work_s)


@dataclass
class RunProfile:
    """The stages of a run's subtasks: pass each event to `follow` in order, then read the fields.

    Times are active seconds: pauses of the run are left out.
    """

    by_host: dict[str, StageSums] = field(default_factory=dict)
    """Host → sums over its subtasks whose update was applied; "" for subtasks of an unknown host."""
    by_epoch: dict[int, StageSums] = field(default_factory=dict)
    """Epoch → sums over its subtasks whose update was applied."""
    steady: dict[str, EpochMeans] = field(default_factory=dict)
    """Host → how long its subtasks occupied it in each epoch, without the stages that a process has only once."""
    hosts: dict[str, HostUse] = field(default_factory=dict)
    """Host → which workunits it has, and for how long it had any."""
    wasted: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Reason (LOST, REFUSED, SUPERSEDED, CANCELLED) → number of wasted attempts, and the seconds that hosts had
    them."""
    history: JobHistory = field(default_factory=JobHistory)
    last_applied_s: float = 0.0
    """Active seconds at which the last subtask was folded."""
    since_s: float = 0.0
    """Active seconds at which the measurement begins. Of subtasks sent earlier, only the stages that a process has once
    are counted."""
    first_measured_s: float | None = None
    """Active seconds at which the evaluator finished its first evaluation, or None before."""
    evaluations_s: list[float] = field(default_factory=list)
    """Seconds of each evaluation."""
    _created: dict[str, float] = field(default_factory=dict)
    """Open workunit → active seconds at its creation."""
    _sent: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    """Open workunit → host → active seconds at which it got it, and the bytes that it had to download."""

    @classmethod
    def of(cls, events: Iterable[Recorded]) -> Self:
        """Return the profile of a sequence of events."""
        profile = cls()
        for recorded in events:
            profile.follow(recorded)
        return profile

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event."""
        # Update the history first, because the active time of this event follows from it.
        self.history.follow(recorded)
        now_s = self.history.wall_s  # active time: pauses of the run are no stage
        match event := recorded.event:
            case WorkunitCreated():
                self._created[event.workunit] = now_s
            case WorkunitSent():
                self._sent.setdefault(event.workunit, {})[event.host] = now_s, event.bytes_down
                use = self.hosts.setdefault(event.host, HostUse(first_s=now_s))
                if now_s >= self.since_s:
                    use.takes(event.workunit, now_s)
            case UpdateApplied():
                self._apply(event, now_s)
            case UpdateRefused() | ResultRefused():
                self._waste(REFUSED, event, event.host, now_s)
            case UpdateSuperseded():
                self._waste(SUPERSEDED, event, event.host, now_s)
            case WorkunitFailed():
                self._waste(LOST, event, "", now_s)
            case WorkunitCancelled():
                self._waste(CANCELLED, event, "", now_s)
            case EpochClosed():
                for means in self.steady.values():
                    means.close(event.epoch)
            case VersionEvaluated():
                self.first_measured_s = now_s if self.first_measured_s is None else self.first_measured_s
                self.evaluations_s.append(event.evaluation_s)
            case _:
                pass

    def machine(self, host: str) -> tuple[int, int, str]:
        """Return facts about a host: the bytes that it downloaded and uploaded for applied subtasks, and its machine.

        The machine is a text for users, empty if unknown.
        """
        sums, use = self.by_host.get(host, StageSums()), self.hosts.get(host, HostUse())
        return sums.bytes_down, sums.bytes_up, ", ".join(word for word in (use.backend, use.machine) if word)

    def total(self, hosts: Iterable[str] | None = None) -> StageSums:
        """Return the sums over the given hosts together, or over all hosts if None."""
        chosen, wanted = StageSums(), None if hosts is None else set(hosts)
        for host, sums in self.by_host.items():
            if wanted is None or host in wanted:
                chosen.add(sums)
        return chosen

    @property
    def epochs(self) -> list[int]:
        """The epochs with applied updates."""
        return sorted(self.by_epoch)

    @property
    def idle_s(self) -> float:
        """Seconds in which hosts had no workunit, summed over all hosts."""
        return sum(host.idle_s for host in self.hosts.values())

    def _apply(self, event: UpdateApplied, now_s: float) -> None:
        """Add the stages of an applied subtask to the sums of its host and epoch."""
        self.last_applied_s = now_s
        created_s = self._created.pop(event.workunit, None)
        sendings = self._sent.pop(event.workunit, {})
        # Journals of older versions do not name an upload's host. The last one that got the workunit most likely
        # uploaded it.
        host = event.host or next(reversed(sendings), "")
        # A second host that had it as well is free from now on: BOINC and pools withdraw its copy.
        for other in sendings:
            self.hosts[other].ends(event.workunit, now_s)
        if use := self.hosts.get(host):
            use.machine, use.backend = event.machine or use.machine, event.backend or use.backend
        if created_s is None:
            return
        sent_s, bytes_down = sendings.get(host, (created_s, 0))
        epoch = WorkunitName.parse(event.workunit).epoch
        stages = stages_of(event, now_s - created_s, now_s - sent_s)
        # Only the one-time stages of its process count: others will start later, too.
        if sent_s < self.since_s:
            once = {stage: stages[stage] for stage in ONCE} if "first" in event.times_s else {}
            self._add(host, epoch, StageSums(compiled=len(once) > 0, seconds=once))
            return
        busy_s = sum(stages[stage] for stage in OF_HOST if stage not in ONCE)
        self.steady.setdefault(host, EpochMeans()).add(epoch, busy_s)
        self._add(
            host,
            epoch,
            StageSums(
                subtasks=1,
                samples=event.samples,
                bytes_up=event.bytes_up,
                bytes_down=bytes_down,
                told=bool(event.times_s),
                compiled="first" in event.times_s,
                seconds=stages,
            ),
        )

    def _add(self, host: str, epoch: int, sums: StageSums) -> None:
        self.by_host.setdefault(host, StageSums()).add(sums)
        self.by_epoch.setdefault(epoch, StageSums()).add(sums)

    def _waste(self, reason: str, event: _Ended, host: str, now_s: float) -> None:
        """Count an attempt as wasted, for the given host or, if it is "", for all hosts that had the workunit."""
        workunit: str = event.workunit
        sendings = self._sent.get(workunit, {})
        hosts = [host] if host else list(sendings)
        for one in hosts:
            # Only of this host: another one may still train the same workunit.
            sent_s, _ = sendings.pop(one, (now_s, 0))
            count, seconds = self.wasted.get(reason, (0, 0.0))
            self.wasted[reason] = count + 1, seconds + now_s - sent_s
            if one in self.hosts:
                self.hosts[one].ends(workunit, now_s)
        if not isinstance(event, ResultRefused):  # its workunit then goes to another host
            self._created.pop(workunit, None)
            self._sent.pop(workunit, None)


def stages_of(event: UpdateApplied, turnaround_s: float, with_host_s: float) -> dict[str, float]:
    """Divide the time of an applied update into stages; return stage → seconds, none negative.

    Args:
        event: The update, with the times that client and server report.
        turnaround_s: Seconds from the creation of its workunit to its application, to which the stages add up.
        with_host_s: Seconds of these since its host got the workunit.
    """
    left_s = max(0.0, turnaround_s)
    stages: dict[str, float] = {}

    def take(stage: str, seconds: float) -> None:
        nonlocal left_s
        stages[stage] = min(left_s, max(0.0, seconds))
        left_s -= stages[stage]

    # From the end: the server measured these itself. The client's claims are scaled to the rest of the time.
    take(FOLD, event.fold_s or 0.0)
    take(SERVER, event.waited_s or 0.0)
    with_host_s -= stages[FOLD] + stages[SERVER]
    told = {**dict.fromkeys(CLIENT_STAGES, 0.0), **event.times_s}
    told[TRAIN] = max(0.0, (event.train_s or 0.0) - told["first"])
    claimed_s = sum(told.values())
    # A clock that runs fast, or a lie, must not make the stages longer than the host had the workunit.
    scale = min(1.0, (with_host_s + _NOTICED_S) / claimed_s) if claimed_s > 0 else 0.0
    for stage, seconds in told.items():
        take(stage, seconds * scale)
    take(AWAY, with_host_s - sum(stages[stage] for stage in told))
    stages[QUEUE] = left_s
    return stages
