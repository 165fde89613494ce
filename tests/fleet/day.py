"""A day of a fleet against a cloud under a virtual clock: real passes, random preemptions.

After a pass with nothing to do, passes are skipped until something happens, for three hours at most.
"""

import random
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

from tests.fleet.fake_cloud import Clock
from vcdl.fleet.controller import Controller
from vcdl.fleet.run import ControlLoop, drained, up

HOURS = 24
INSTANCES = 50
HOURLY_RISK = 0.05
_HEARTBEAT_S = 3 * 3600


class Cloud(Protocol):
    """The operations of a cloud that its customers do not have."""

    def live(self) -> list[str]:
        """Ids of all instances that cost, in all places, with any tags."""
        ...

    def preempt(self, id: str) -> None: ...


@dataclass(frozen=True)
class Truth:
    """The life of an instance by the cloud's own records."""

    type: str
    launched_s: float
    ended_s: float
    preempted: bool


@dataclass
class Day:
    """The outcome of the day."""

    preempted: int = 0
    passes: int = 0
    below_target_s: float = 0.0
    missing_instance_s: float = 0.0
    most_live: int = 0
    seconds: float = 0.0
    lines: list[str] = field(default_factory=list)

    def line(self) -> str:
        """One line for the log of the tests."""
        return (
            f"{self.preempted} preempted in {self.seconds / 3600:.1f} h, {self.passes} passes; below target "
            f"{self.below_target_s:.0f} s ({self.below_target_s / self.seconds:.2%}), "
            f"{self.missing_instance_s / self.seconds / INSTANCES:.4%} of the capacity missing; "
            f"at most {self.most_live} live"
        )


def live_a_day(controller: Controller, cloud: Cloud, clock: Clock, seed: int = 6) -> Day:
    """Up, 24 hours of preemptions, drained, and gone; the clock stands at the end afterwards."""
    chance, day, began_s = random.Random(seed), Day(), clock.now_s
    loop = ControlLoop(controller, 30, day.lines.append, threading.Event())
    controller.change(up)
    due: list[tuple[float, str]] = []
    next_hour_s, next_pass_s = began_s, began_s
    while clock.now_s < began_s + HOURS * 3600:
        if clock.now_s >= next_pass_s:
            next_pass_s = _pass(loop, day, clock, due)
        if clock.now_s >= next_hour_s:
            due += [
                (next_hour_s + chance.randrange(1, 3600), id) for id in cloud.live() if chance.random() < HOURLY_RISK
            ]
            due.sort()
            next_hour_s += 3600
        _until(min(next_pass_s, next_hour_s, *(at_s for at_s, _ in due[:1])), cloud, clock, day)
        while due and due[0][0] <= clock.now_s:
            id = due.pop(0)[1]
            if id in cloud.live():
                cloud.preempt(id)
                day.preempted += 1
        if len(cloud.live()) < INSTANCES:  # the next pass replaces them, within 30 s
            next_pass_s = min(next_pass_s, began_s + ((clock.now_s - began_s) // 30 + 1) * 30)
    day.seconds = clock.now_s - began_s
    controller.change(drained)
    for _ in range(100):
        over, wait_s = loop.run_once()
        if over:
            break
        clock.sleep(max(wait_s, 300.0))
    return day


def _pass(loop: ControlLoop, day: Day, clock: Clock, due: list[tuple[float, str]]) -> float:
    before = len(day.lines)
    _, wait_s = loop.run_once()
    day.passes += 1
    return clock.now_s + (_HEARTBEAT_S if len(day.lines) == before else wait_s)


def _until(time_s: float, cloud: Cloud, clock: Clock, day: Day) -> None:
    count = len(cloud.live())
    day.most_live = max(day.most_live, count)
    if count < INSTANCES:
        day.below_target_s += time_s - clock.now_s
        day.missing_instance_s += (INSTANCES - count) * (time_s - clock.now_s)
    clock.now_s = time_s


def by_hand(
    lives: Iterable[Truth], usd_per_h: Mapping[str, str], free_within_s: float, at_least_s: int = 60
) -> Fraction:
    """Dollars: the seconds of each life times its price, 0 for an early preemption."""
    total = Fraction(0)
    for life in lives:
        seconds = life.ended_s - life.launched_s
        if not (life.preempted and seconds < free_within_s):
            total += Fraction(max(seconds, at_least_s)) * Fraction(Decimal(usd_per_h[life.type])) / 3600
    return total
