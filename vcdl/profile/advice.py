"""Advise on a run: name the stages that take most time, and the setting whose change makes the job fastest."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from vcdl.job.cut import SMALL_FLEET, enough_shards
from vcdl.planner.throughput import HostType, Servers, Subtask, throughput
from vcdl.profile.measured_hosts import mean_subtask, measured_servers, measured_types
from vcdl.profile.stages import AWAY, FOLD, TRAIN, RunProfile
from vcdl.report.wording import duration, size

if TYPE_CHECKING:
    from vcdl.job import Job

_SHARDS = "data > shards"
_WORTH = 1.1
"""Least ratio of speeds for which a change is worth advising, because less is within the model's error."""
_OVERHEAD = 0.1
"""Fraction of a subtask's time on its host that may be spent on anything but training."""
_BUSY = 0.8
"""Busy fraction of a server from which on it delays its hosts, so that more servers would help."""
_GROUPS = {
    "start-up": ("start", "build", "prepare", "first"),
    "training": ("train",),
    "suspension": ("paused",),
    "checkpoints and output": ("checkpoint", "write"),
    "the transfer to the hosts and back": (AWAY,),
}
"""Group of stages, as advice names it → its stages. Stages in which the host trains another subtask are in no group."""


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job that advice may change."""

    shards: int
    epochs: int
    servers: int = 1
    sends_all: bool = False
    """Whether uploads contain all weights, without a codec that sends less."""

    @classmethod
    def of(cls, job: "Job") -> Self:
        """Return the settings of a job."""
        return cls(job.data.shards, job.stop.epochs, job.grid.servers, sends_all=not job.transport.needs_bases)


@dataclass(frozen=True)
class SettingChange:
    """A change of one setting of a job, with the gain that the planner's model predicts."""

    key: str
    """The setting, as users write it: `data > shards`."""
    now: int
    value: int
    """The recommended value."""
    gain: float
    """Samples an hour with the change, divided by those without it."""

    def words(self) -> str:
        """Return the change as a clause for users."""
        return f"set `{self.key}` to {self.value} (it is {self.now}), and the job runs about {self.gain:.1f} × as fast"


@dataclass(frozen=True)
class Advice:
    """The group of stages that takes most time, and the most useful change of a setting."""

    group: str
    """The group that takes most of a host's time: a key of _GROUPS, or idle or waiting time."""
    share: float
    """The group's fraction of a subtask's cycle on its host, idle time included."""
    cycle_s: float
    """Mean seconds from a host's start of a subtask to its next start."""
    change: SettingChange | None
    """The change that makes the job fastest, or None if none gains a factor of _WORTH."""
    smaller_bytes: float | None = None
    """Bytes of a subtask's transfers if they take longer than its training although a codec could reduce them, else
    None."""
    enough_shards: int | None = None
    """The least number of shards with which the job learns well, if fewer would be faster and this is why none is
    advised. Otherwise None."""

    def words(self) -> str:
        """Return the advice as text, with a sentence on slow links if transfers outlast training."""
        said = f"{self.group} takes {self.share:.0%} of the {_seconds(self.cycle_s)} that a host spends on a subtask"
        if self.change is not None:
            said = f"{said}: {self.change.words()}."
        elif self.group == "training":
            said = f"{said}: nothing delays the job, and only more or faster hosts would make it faster."
        elif self.enough_shards is not None:
            said = (
                f"{said}. Fewer shards would be faster, but the job would learn less: by `vcdl check` a fleet of its "
                f"size, or of {SMALL_FLEET}, needs `data > shards` of {self.enough_shards} or more."
            )
        elif self.smaller_bytes is None:
            said = f"{said}, and no key of the job would change that by a tenth or more."
        else:
            said = f"{said}."
        if self.smaller_bytes is None:
            return said
        return (
            f"{said} Transfers of a subtask take longer than its training: if links are slow, `transport` sends a part "
            f"of its {size(self.smaller_bytes)} (docs/codecs.md, Uploads that fit the link)."
        )


def advise(profile: RunProfile, settings: JobSettings) -> Advice | None:
    """Return the advice for a run, or None if no update was applied yet.

    Args:
        profile: The run's measured stages.
        settings: Its present settings.
    """
    sums = profile.total()
    if not sums.subtasks or not profile.hosts:
        return None
    idle_s = profile.idle_s / sums.subtasks
    # Stages that wait while another subtask trains on the host are in no group: they cost nothing.
    shares = {name: sums.mean_s(*stages) for name, stages in _GROUPS.items()}
    is_server = _server_busy(profile, settings) > _BUSY
    # Idle hosts look alike in the journal. Only the servers' own time shows whether they were the cause.
    shares["waiting for the server" if is_server else "idleness"] = idle_s
    cycle_s = sum(shares.values())
    group = max(shares, key=lambda name: shares[name])
    subtask = mean_subtask(sums)
    hosts, servers = measured_types(profile), measured_servers(profile, settings.servers)
    slots = round(sum(host.count * host.slots for host in hosts))
    # `vcdl check` recommends the same number. Assume at least SMALL_FLEET slots: a `shards` key that the user sets now
    # must also suffice when the job later runs on more hosts.
    enough = enough_shards(settings.epochs, max(slots, SMALL_FLEET))
    changes = list(_changes(hosts, servers, subtask, settings, enough))
    best = max(changes, key=lambda change: change.gain, default=None)
    is_worth = best is not None and best.gain >= _WORTH
    fewer = (change.gain for change in _changes(hosts, servers, subtask, settings, 1) if change.key == _SHARDS)
    # This is reported as well, because a user who sees the fraction of the start-up would otherwise try fewer shards.
    is_held = not is_worth and max(fewer, default=0.0) >= _WORTH
    is_far = settings.sends_all and sums.mean_s(AWAY) > sums.mean_s(TRAIN)
    return Advice(
        group=group,
        share=shares[group] / cycle_s if cycle_s else 0.0,
        cycle_s=cycle_s,
        change=best if is_worth else None,
        smaller_bytes=subtask.bytes_up + subtask.bytes_down if is_far else None,
        enough_shards=enough if is_held else None,
    )


def _server_busy(profile: RunProfile, settings: JobSettings) -> float:
    """Return the fraction of the run's time that its parameter servers spent on applying updates."""
    wall_s = profile.history.wall_s * settings.servers
    return profile.total().seconds.get(FOLD, 0.0) / wall_s if wall_s > 0 else 0.0


def _changes(
    hosts: Sequence[HostType], servers: Servers, subtask: Subtask, settings: JobSettings, least_shards: int
) -> Iterator[SettingChange]:
    """Yield the possible changes of single settings, with the gain of each by the planner's model.

    Args:
        hosts: The run's measured hosts.
        servers: Its measured parameter servers.
        subtask: Its mean subtask.
        settings: Its present settings.
        least_shards: The fewest shards to recommend.
    """
    now = throughput(hosts, servers, subtask)
    if now.samples_per_s <= 0:
        return

    def gain(**changed: object) -> float:
        parts = {"hosts": hosts, "servers": servers, "subtask": subtask, **changed}
        return throughput(**parts).samples_per_s / now.samples_per_s  # type: ignore[arg-type]

    shards = max(_fewer_shards(hosts, subtask, settings.shards), least_shards)
    if shards < settings.shards:
        larger = replace(subtask, samples=subtask.samples * settings.shards / shards)
        yield SettingChange(_SHARDS, settings.shards, shards, gain(subtask=larger))
    if now.limit == "servers":
        more = settings.servers + 1
        yield SettingChange("grid > servers", settings.servers, more, gain(servers=replace(servers, count=more)))


def _fewer_shards(hosts: Sequence[HostType], subtask: Subtask, shards: int) -> int:
    """Return the number of shards with which start-up is at most _OVERHEAD of a subtask, but no slot has to wait.

    It is at most `shards`, the present number.
    """
    # Samples with which the fixed part is _OVERHEAD of a subtask.
    needed = [(host.fixed_s + host.away_s) * (1 / _OVERHEAD - 1) / host.sample_s for host in hosts if host.sample_s > 0]
    if max(needed, default=0.0) <= 0:
        return shards
    wanted = math.ceil(sum(host.count * _outstanding(host, subtask.samples) for host in hosts))
    return min(shards, max(wanted, round(shards * subtask.samples / max(needed)), 1))


def _outstanding(host: HostType, samples: float) -> float:
    """Return how many subtasks a host needs at a time, in training and in transfer, so that its slots stay busy."""
    busy_s = host.busy_s(samples)
    return min(host.at_once, host.slots * (1.0 + host.away_s / busy_s)) if busy_s > 0 else host.at_once


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
