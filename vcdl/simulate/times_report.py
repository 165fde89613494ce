"""Report the figures of a simulation without training: duration, waste, staleness and cost of a job."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from vcdl.report.measures import Report
from vcdl.report.wording import duration, group_digits
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.slot_times import SlotTimes

_HOUR_S = 3600.0
"""Seconds in an hour, so that rates are per hour."""


@dataclass(frozen=True)
class Spread:
    """The distribution of a quantity over all updates."""

    mean: float
    median: float
    p99: float
    """The 99th percentile."""
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the distribution of some values; all numbers are 0 without values."""
        if not values:
            return cls(0.0, 0.0, 0.0, 0.0)
        ordered, last = sorted(values), len(values) - 1
        return cls(sum(ordered) / len(ordered), ordered[last // 2], ordered[int(0.99 * last)], ordered[last])

    @property
    def fields(self) -> dict[str, float]:
        """The numbers, rounded, by name."""
        return {name: round(value, 3) for name, value in vars(self).items()}


@dataclass(frozen=True)
class TimesReport:
    """The figures of a simulation without training."""

    fleet: ClientFleet
    slots: SlotTimes
    staleness: "array[int]"
    """The staleness of each update."""
    stop_reason: str
    """Why the job ended (StopReason), or an empty string if it has not."""
    epochs: int
    wall_s: float
    """Virtual seconds of the job."""
    updates: int
    failed: int
    """Number of workunits that the grid gave up; their subtasks were reissued."""
    hosts_by_hour: tuple[float, ...] = ()
    """For each hour of the day, in UTC, the mean fraction of hosts that were present; empty without a population."""

    @classmethod
    def of(
        cls,
        fleet: ClientFleet,
        report: Report,
        slots: SlotTimes,
        staleness: Iterable[int],
        by_hour: Sequence[float] = (),
    ) -> Self:
        """Return the figures of a job that has ended.

        Args:
            fleet: The simulated clients.
            report: The run's report.
            slots: How the slots' time was spent.
            staleness: The staleness of each update.
            by_hour: For each hour of the day, the fraction of hosts that were present; empty if unknown.
        """
        return cls(
            fleet=fleet,
            slots=slots,
            staleness=array("q", staleness),
            stop_reason=report.stop.reason if report.stop is not None else "",
            epochs=len(report.epochs),
            wall_s=report.wall_s,
            updates=report.totals.applied,
            failed=report.totals.failed,
            hosts_by_hour=tuple(by_hour),
        )

    @property
    def is_given_up(self) -> bool:
        """Whether the job ended because a subtask failed as often as allowed."""
        return self.stop_reason == "subtask_failed"

    @property
    def client_hours(self) -> float:
        """Number of clients times the hours of the job, including hours in which they were away."""
        return self.fleet.clients * self.wall_s / _HOUR_S

    @property
    def usd(self) -> float:
        """The clients' cost in USD, including the time in which they were idle or away."""
        return self.client_hours * self.fleet.usd_per_h

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for times.json."""
        return {
            "stop_reason": self.stop_reason,
            "epochs": self.epochs,
            "wall_s": round(self.wall_s, 3),
            "subtasks": {
                "applied": self.updates,
                "begun": self.slots.started,
                "lost": self.slots.lost,
                "failed": self.failed,
            },
            "staleness": Spread.of(self.staleness).fields,
            "server_wait_s": Spread.of(self.slots.waits_s).fields,
            "server_busy": round(self._server_busy, 4),
            "slots_useful": round(self._share(self.slots.useful_s), 4),
            "slots_lost": round(self._share(self.slots.lost_s), 4),
            "client_hours": round(self.client_hours, 3),
            "usd": round(self.usd, 2),
            "hosts_by_hour": [round(part, 4) for part in self.hosts_by_hour] or None,
        }

    def lines(self) -> list[str]:
        """Return the lines that `vcdl simulate` prints."""
        stale, wait = Spread.of(self.staleness), Spread.of(self.slots.waits_s)
        rows = {
            "subtasks": f"{group_digits(self.updates)} done; {group_digits(self.slots.started)} were started, "
            f"{group_digits(self.slots.lost)} of these lost, {group_digits(self.failed)} given up",
            "staleness": f"{stale.mean:.1f} on average, median {stale.median:.0f}, 99 % up to {stale.p99:.0f}, "
            f"{stale.max:.0f} at most",
            "waited for a server": f"{wait.mean:.2f} s on average, 99 % up to {wait.p99:.2f} s, {wait.max:.2f} s at "
            f"most; servers busy {self._server_busy:.1%}",
            "slots": f"useful {self._share(self.slots.useful_s):.1%}, lost "
            f"{self._share(self.slots.lost_s):.1%}; otherwise idle or away",
            "clients": (
                f"{group_digits(self.fleet.clients)} for {duration(self.wall_s)}, {self.client_hours:,.1f} h in all"
            ),
        }
        if self.hosts_by_hour:
            mean = sum(self.hosts_by_hour) / len(self.hosts_by_hour)
            low, high = min(self.hosts_by_hour), max(self.hosts_by_hour)
            rows["hosts on"] = f"{mean:.0%} on average, {low:.0%} to {high:.0%} by the hour of the day"
        if self.fleet.usd_per_h:
            rows["cost"] = f"${self.usd:,.2f}"
        return [f"{label:<20} {words}" for label, words in rows.items()]

    def _share(self, slot_s: float) -> float:
        # All slots of all clients, also while these are away, so that absence shows as unused capacity.
        whole_s = self.fleet.clients * self.fleet.slots * self.wall_s
        return min(1.0, slot_s / whole_s) if whole_s else 0.0

    @property
    def _server_busy(self) -> float:
        whole_s = self.fleet.servers * self.wall_s
        return min(1.0, len(self.slots.waits_s) * self.fleet.update_s / whole_s) if whole_s else 0.0
