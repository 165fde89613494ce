"""The outcome of a subtask on a simulated client, by seed, client and subtask alone, known at its begin."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vcdl.simulate.client_fleet import ClientFleet
from vcdl.wire.workunit import WorkunitName

_SPEED, _SUBTASK, _AWAY, _LINK = range(4)
"""Streams of random numbers: each kind of draw has its own."""


@dataclass(frozen=True)
class SubtaskOutcome:
    """The outcome of a subtask; moments are virtual seconds of the clock."""

    slot_free_s: float
    """The moment at which its slot can take another subtask."""
    heard_of_s: float
    """The moment at which the server has the upload, or knows that there will be none."""
    train_s: float
    """Training time in the upload."""
    trained_s: float
    """The moment at which the training ends."""
    lost: str | None
    """The reason why no upload arrives; None: one does."""
    is_sent: bool = True
    """Whether its client wrote an upload, which may be lost on its way."""
    fraction: float = 1.0
    """The part of the subtask that is trained in that time."""


class Clients:
    """The simulated clients, numbered from 0."""

    def __init__(self, fleet: ClientFleet) -> None:
        self.fleet = fleet
        self.speeds = _speeds(fleet)
        """The speed of each client; 1 on average."""
        self._links = None if fleet.link_mb_per_s is None else _links(fleet, fleet.link_mb_per_s)
        """The rate of each client's link, megabytes a second."""
        self._draws = [_away_times(fleet, client) for client in range(fleet.clients)]
        self._away: list[list[tuple[float, float]]] = [[] for _ in range(fleet.clients)]

    def host(self, client: int) -> str:
        """Return the host name of a client for its next subtask."""
        return f"client-{client:02d}"

    def here_from(self, client: int, time_s: float) -> float:
        """Return the first moment at or after `time_s` at which the client is present."""
        begin_s, end_s = self._next_away(client, time_s)
        return end_s if begin_s <= time_s else time_s

    def bytes_per_s(self, client: int) -> float | None:
        """Return the rate of the client's link, or None where links are not simulated."""
        return None if self._links is None else 1e6 * self._links[client]

    def link_s(self, client: int, size_bytes: int) -> float:
        """Return the seconds that the client's link needs for `size_bytes`; 0 where links are not simulated."""
        rate = self.bytes_per_s(client)
        return 0.0 if rate is None else size_bytes / rate

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
            losses: Earlier losses of the same workunit.
            bytes_down: Size of its download.
            target_s: Time after which the client stops, as the job demands.
        """
        fleet, host = self.fleet, self.host(client)
        draw = [fleet.seed, _SUBTASK, client, name.epoch, name.shard, name.attempt]
        rng = np.random.default_rng([*draw, losses] if losses else draw)
        training, download, upload = (1 + fleet.jitter * (2 * rng.random(3) - 1)).tolist()
        luck, part = rng.random(2).tolist()
        is_lost, is_dropped = luck < fleet.lost, rng.random() < fleet.lost_uploads
        alone_s = fleet.subtask_s * training / self.speeds[client]
        whole_s = alone_s * (1 + fleet.core_sharing * (fleet.slots - 1))
        train_s = whole_s if target_s is None else min(whole_s, target_s)
        timeout_s = now_s + fleet.result_timeout_s
        begin_s = now_s + fleet.download_s * download + self.link_s(client, bytes_down)
        end_s, is_preempted = self._train(client, begin_s, train_s * part if is_lost else train_s, timeout_s)
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
        """When a training of `left_s` ends, if need be after its timeout, and whether by a preemption."""
        checkpoint_s = self.fleet.checkpoint_every_s
        now_s = self.here_from(client, begin_s)
        while True:
            away_s, back_s = self._next_away(client, now_s)
            if now_s + left_s <= away_s or now_s > timeout_s:
                return now_s + left_s, False
            if checkpoint_s is None:
                return away_s, True
            done_s = away_s - now_s
            left_s -= done_s - (done_s % checkpoint_s if checkpoint_s else 0.0)
            now_s = back_s

    def _next_away(self, client: int, time_s: float) -> tuple[float, float]:
        """Begin and end of the first absence that is not over at `time_s`."""
        known = self._away[client]
        while not known or known[-1][1] <= time_s:
            known.append(next(self._draws[client]))
        return next(absence for absence in known if absence[1] > time_s)


def _speeds(fleet: ClientFleet) -> list[float]:
    """Speeds at equal ratios, in a drawn order, so that a client's number does not tell its speed."""
    exponents = np.linspace(-0.5, 0.5, fleet.clients) if fleet.clients > 1 else np.zeros(1)
    speeds = fleet.speed_ratio**exponents
    order = np.random.default_rng([fleet.seed, _SPEED]).permutation(fleet.clients)
    return [float(speed) for speed in (speeds / speeds.mean())[order]]


def _links(fleet: ClientFleet, middle: float) -> list[float]:
    """Rates at equal ratios around the middle one, in a drawn order that speeds do not follow."""
    exponents = np.linspace(-0.5, 0.5, fleet.clients) if fleet.clients > 1 else np.zeros(1)
    order = np.random.default_rng([fleet.seed, _LINK]).permutation(fleet.clients)
    return [float(rate) for rate in (middle * fleet.link_ratio**exponents)[order]]


def _away_times(fleet: ClientFleet, client: int) -> Iterator[tuple[float, float]]:
    """Begin and end of a client's absences, in order."""
    if fleet.preempted_every_s is None:
        yield float("inf"), float("inf")
        return
    rng = np.random.default_rng([fleet.seed, _AWAY, client])
    now_s = 0.0
    while True:
        begin_s = now_s + fleet.preempted_every_s * float(rng.exponential())
        now_s = begin_s + fleet.away_s * float(rng.exponential())
        yield begin_s, now_s
