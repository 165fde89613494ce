"""Draw what happens to a subtask on a simulated client: when its upload arrives, or how it is lost.

The outcome depends on seed, client and subtask only, and is known when the subtask starts.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.population import Population
from vcdl.simulate.presence import NEVER, Absence, Presence, absences_in, absences_of, exponential_absences
from vcdl.wire.workunit import WorkunitName

_SPEED, _SUBTASK, _AWAY, _LINK, _HOST = range(5)
"""Streams of random numbers: each kind of draw has its own."""


@dataclass(frozen=True)
class SubtaskOutcome:
    """What happens to a subtask that a client starts."""

    slot_free_s: float
    """Virtual time at which its slot can start another subtask."""
    heard_of_s: float
    """Virtual time at which the server has the upload, or learns that there will be none."""
    train_s: float
    """Seconds of training that the upload reports."""
    trained_s: float
    """Virtual time at which the training ends."""
    lost: str | None
    """The reason why no upload arrives, or None if one arrives."""
    is_sent: bool = True
    """Whether its client wrote an upload, even if that is lost on its way."""
    fraction: float = 1.0
    """The fraction of the subtask that is trained by then."""


class Clients:
    """The simulated clients, numbered from 0, with their speeds, links and absences.

    All draws follow from the fleet's seed, so the same fleet always behaves alike. Times are virtual seconds.
    """

    def __init__(self, fleet: ClientFleet) -> None:
        self.fleet = fleet
        hosts = None if fleet.population is None else [_host(fleet, fleet.population, n) for n in range(fleet.clients)]
        self.speeds = _speeds(fleet) if hosts is None else _normalise([host.speed for host in hosts])
        """The speed of each client; 1 on average."""
        self._links = _links(fleet) if hosts is None else [host.links for host in hosts]
        """Rates of each client's link down and up, megabytes a second."""
        self._presence = (
            [_presence(fleet, n) for n in range(fleet.clients)] if hosts is None else [h.presence for h in hosts]
        )

    def host(self, client: int) -> str:
        """Return the name of a client's host for its next subtask, as the journal gets it."""
        return f"client-{client:02d}"

    def here_from(self, client: int, time_s: float) -> float:
        """Return the first virtual time, at or after `time_s`, at which a client is present."""
        return self._presence[client].here_from(time_s)

    def next_absence(self, client: int, time_s: float) -> Absence:
        """Return a client's first absence that ends after `time_s`; it may be under way at that time."""
        return self._presence[client].next_absence(time_s)

    @cached_property
    def have_links(self) -> bool:
        """Whether transfers take time."""
        return any(up < math.inf for _, up in self._links)

    def bytes_per_s(self, client: int) -> float | None:
        """Return the upload rate of a client's link in bytes a second, or None if links are not simulated."""
        up = self._links[client][1]
        return None if up == math.inf else 1e6 * up

    def upload_s(self, client: int, size_bytes: int) -> float:
        """Return the seconds that a client's link needs to upload `size_bytes`, or 0 if links are not simulated."""
        return size_bytes / (1e6 * self._links[client][1])

    def hosts_by_hour(self, until_s: float) -> list[float]:
        """Return the mean fraction of present clients for each hour of the day, in UTC, up to a virtual time."""
        hours: list[list[int]] = [[] for _ in range(24)]
        for number in range(max(24, int(until_s // 3600.0))):
            here = sum(presence.here_from(number * 3600.0) <= number * 3600.0 for presence in self._presence)
            hours[number % 24].append(here)
        return [sum(here) / len(here) / self.fleet.clients for here in hours]

    def outcome(
        self,
        client: int,
        name: WorkunitName,
        now_s: float,
        losses: int = 0,
        *,
        bytes_down: int = 0,
        target_s: float | None = None,
    ) -> SubtaskOutcome:
        """Draw the outcome of a subtask that starts now.

        Args:
            client: The client's number.
            name: The subtask.
            now_s: Virtual time.
            losses: How often the same workunit was lost before; each time another outcome is drawn.
            bytes_down: Size of its download.
            target_s: Seconds of training after which the client stops, or None if it trains the whole subtask.
        """
        fleet, host = self.fleet, self.host(client)
        draw = [fleet.seed, _SUBTASK, client, name.epoch, name.shard, name.attempt]
        # The seed is made of subtask and client and not of the order of calls: another order of events must not change
        # what a client does.
        rng = np.random.default_rng([*draw, losses] if losses else draw)
        training, download, upload = (1 + fleet.jitter * (2 * rng.random(3) - 1)).tolist()
        # Always drawn, so that a higher `lost` loses further subtasks and leaves the fate of the others as it was.
        luck, part = rng.random(2).tolist()
        is_lost, is_dropped = luck < fleet.lost, rng.random() < fleet.lost_uploads
        alone_s = fleet.subtask_s * training / self.speeds[client]
        whole_s = alone_s * (1 + fleet.core_sharing * (fleet.slots - 1))
        train_s = whole_s if target_s is None else min(whole_s, target_s)
        timeout_s = now_s + fleet.result_timeout_s
        begin_s = now_s + fleet.download_s * download + bytes_down / (1e6 * self._links[client][0])
        end_s, is_preempted = self._train(client, begin_s, train_s * part if is_lost else train_s, timeout_s)
        # A client that learns of the timeout stops training what is no longer wanted.
        slot_free_s = min(self.here_from(client, end_s), self.here_from(client, timeout_s))
        arrives_s = end_s + fleet.upload_s * upload
        planned = SubtaskOutcome(slot_free_s, arrives_s, train_s, end_s, None, fraction=train_s / whole_s)
        report_s = timeout_s if fleet.loss_report_s is None else min(timeout_s, end_s + fleet.loss_report_s)
        if is_lost or is_preempted:
            reason = f"{host} went away" if is_preempted else f"{host} lost it"
            return replace(planned, heard_of_s=report_s, lost=reason, is_sent=False)
        if is_dropped:
            return replace(planned, heard_of_s=report_s, lost=f"the upload of {host} was lost")
        if arrives_s > timeout_s:
            lost = f"no result of {host} after {fleet.result_timeout_s:g} s"
            return replace(planned, heard_of_s=timeout_s, lost=lost)
        return planned

    def _train(self, client: int, begin_s: float, left_s: float, timeout_s: float) -> tuple[float, bool]:
        """Return when a client's training ends, and whether an absence ended it so that its work is lost.

        Args:
            client: The client's number.
            begin_s: Virtual time at which it begins.
            left_s: Seconds of training that it takes without absences.
            timeout_s: Virtual time after which the end does not matter, so that the search for it ends.
        """
        checkpoint_s = self.fleet.checkpoint_every_s
        now_s = self.here_from(client, begin_s)
        while True:
            absence = self._presence[client].next_absence(now_s)
            if now_s + left_s <= absence.begin_s or now_s > timeout_s:
                return now_s + left_s, False
            if checkpoint_s is None or absence.loses_work:
                return absence.begin_s, True
            # What was trained since the last checkpoint is lost with the preemption.
            done_s = absence.begin_s - now_s
            left_s -= done_s - (done_s % checkpoint_s if checkpoint_s else 0.0)
            now_s = absence.end_s


@dataclass(frozen=True)
class _Host:
    """One host drawn from a population."""

    speed: float
    links: tuple[float, float]
    """Rates down and up, megabytes a second."""
    presence: Presence


def _host(fleet: ClientFleet, population: Population, client: int) -> _Host:
    """Draw the host with the number `client`: its group, by the groups' shares, then its other properties."""
    rng = np.random.default_rng([fleet.seed, _HOST, client])
    # A trace only contains how many hosts are present, so all hosts are alike. The n-th is present while the trace's
    # fraction is above the host's own place between 0 and 1.
    if not population.groups:
        return _Host(1.0, (math.inf, math.inf), Presence(absences_in(population.trace, (client + 0.5) / fleet.clients)))
    ends = list(accumulate(group.share for group in population.groups))
    luck = float(rng.random()) * ends[-1]
    group = next(group for group, end in zip(population.groups, ends, strict=True) if luck < end)
    faster, wider = np.exp(rng.normal(size=2) * (group.speed_spread, group.link_spread)).tolist()
    links = _rate(group.down_mb_per_s, wider), _rate(group.up_mb_per_s, wider)
    zone_h = group.zones[int(rng.integers(len(group.zones)))]
    absences = absences_of(group, zone_h, lambda cause: np.random.default_rng([fleet.seed, _AWAY, client, cause]))
    return _Host(group.speed * faster, links, Presence(absences))


def _rate(median: float | None, factor: float) -> float:
    """Return a link's rate, or infinity if the group has no links."""
    return math.inf if median is None else median * factor


def _normalise(speeds: list[float]) -> list[float]:
    """Return speeds scaled to a mean of 1."""
    mean = sum(speeds) / len(speeds)
    return [speed / mean for speed in speeds]


def _speeds(fleet: ClientFleet) -> list[float]:
    """Return each client's speed: at equal ratios, 1 on average, in a random order, so that numbers reveal no speed."""
    exponents = np.linspace(-0.5, 0.5, fleet.clients) if fleet.clients > 1 else np.zeros(1)
    speeds = fleet.speed_ratio**exponents
    order = np.random.default_rng([fleet.seed, _SPEED]).permutation(fleet.clients)
    return [float(speed) for speed in (speeds / speeds.mean())[order]]


def _links(fleet: ClientFleet) -> list[tuple[float, float]]:
    """Return each client's rates down and up in MB/s: at equal ratios around the median, in a random order."""
    if fleet.link_mb_per_s is None:
        return [(math.inf, math.inf)] * fleet.clients
    exponents = np.linspace(-0.5, 0.5, fleet.clients) if fleet.clients > 1 else np.zeros(1)
    order = np.random.default_rng([fleet.seed, _LINK]).permutation(fleet.clients)
    return [(float(rate), float(rate)) for rate in (fleet.link_mb_per_s * fleet.link_ratio**exponents)[order]]


def _presence(fleet: ClientFleet, client: int) -> Presence:
    """Return the preemptions of a client of a fleet without a population."""
    if fleet.preempted_every_s is None:
        return Presence(iter([NEVER]))
    rng = np.random.default_rng([fleet.seed, _AWAY, client])
    return Presence(exponential_absences(fleet.preempted_every_s, fleet.away_s, rng))
