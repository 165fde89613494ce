"""Forecasts of a job's time and cost on some hosts, with ranges, by Monte Carlo; and the best of several choices."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcdl.planner.deadline import RESTART_S, DeadlineTask, follow, spot_only, uniform_progress
from vcdl.planner.spot_market import OutcomeRange, SpotMarket
from vcdl.planner.throughput import HostType, Servers, Subtask, Throughput, throughput

RUNS = 200
"""Simulated runs of a forecast: enough that an 80 % range has 20 outcomes at each end."""
_STEPS = 400
"""Steps in a simulated market, so that a policy decides often enough for its result not to depend on the step."""
_STEP_S = 900.0
"""Longest step: a fleet acts within a minute, and half of the spells are shorter than three of these. Half as long, a
forecast of a week would take twice its second, for the same range.
"""
# A limit, so that a drawn market with hardly any capacity ends.
_LONGEST = 20.0
"""Longest wait for spot capacity without a deadline, in multiples of the work."""
_EPOCHS_DEALT = 12
"""Epochs whose subtasks are scheduled one by one, as each costs time; later epochs take the mean of these."""
_SPREAD = 0.3
"""Relative spread of a subtask's time around its host's mean, drawn uniformly as for simulated clients
(vcdl.simulate.client_fleet). An epoch waits for its slowest subtask: without the spread, forecasts of jobs with as many
slots as shards, or more, were a fifth too fast.
"""
# As measured: docs/measured/planner.md.
MODEL_ERROR = 0.05
"""Relative standard deviation of a forecast's speed where hosts are steady."""


@dataclass(frozen=True)
class Work:
    """The work of a job that is planned."""

    subtasks: int
    """Number of subtasks, over all epochs."""
    subtask: Subtask
    """The size of one."""
    shards: int
    start_s: float = 0.0
    """Seconds before the first subtask."""
    end_s: float = 0.0
    """Seconds after the last subtask."""
    evaluator_s: float = 0.0
    """Seconds from the start until the evaluator has finished its first evaluation; the job cannot end before."""
    error: float = MODEL_ERROR
    """Relative standard deviation of the future speed around the measured one."""


@dataclass(frozen=True)
class Choice:
    """Hosts that the job could run on, with their price."""

    name: str
    hosts: tuple[HostType, ...]
    on_demand_usd_per_h: float = 0.0
    """List price of an hour of all hosts, in USD."""
    spot_usd_per_h: float | None = None
    """Spot price of an hour of all hosts, in USD. None if these are no spot machines, so that none is revoked."""
    restart_s: float = RESTART_S
    """Seconds from requesting a machine until it trains."""
    shards: int = 0
    """Number of shards that the job is planned with, or 0 for its own."""
    units: int = 0
    """Number of units of a fleet, or 0 if this is no fleet."""
    on_demand_units: int = 0
    """Number of these that are on demand."""

    @property
    def usd_per_h(self) -> float:
        """The price of an hour of all hosts, in USD."""
        return self.on_demand_usd_per_h if self.spot_usd_per_h is None else self.spot_usd_per_h

    @property
    def is_listed(self) -> bool:
        """Whether spot machines are priced at the list price, because the spot price is unknown."""
        return self.spot_usd_per_h == self.on_demand_usd_per_h


@dataclass(frozen=True)
class ChoiceForecast:
    """The forecast of a job's time and cost on one choice of hosts."""

    choice: Choice
    speed: Throughput
    wall_s: OutcomeRange
    usd: OutcomeRange
    kept: float
    """The probability that the deadline is met; 1 without a deadline."""


def undisturbed_s(work: Work, hosts: Sequence[HostType], servers: Servers) -> float:
    """Return the seconds that a job takes if no machine is revoked; infinity if the hosts have no speed.

    T = subtasks / X, where X is the throughput, plus the start of each slot and the end, when not all slots have a
    subtask. With more than half as many slots as shards, it is at least the time of the epochs one after the other.
    """
    speed = throughput(hosts, servers, work.subtask)
    if speed.subtasks_per_s <= 0:
        return math.inf
    slots = sum(host.count * host.slots for host in hosts)
    cycle_s = slots / speed.subtasks_per_s
    once_s = sum(host.once_s * host.count * host.slots for host in hosts) / slots
    tail_s = 0.5 * cycle_s * (1.0 - 1.0 / slots) if slots > 1 else 0.0
    trained_s = work.subtasks / speed.subtasks_per_s + tail_s
    # The formula assumes that there is always a next subtask. With nearly as many slots as shards they wait for the
    # epoch's end.
    if 2 * slots > work.shards:
        trained_s = max(trained_s, _epochs_s(work, hosts))
    return max(work.start_s + once_s + trained_s, work.evaluator_s) + work.end_s


def _epochs_s(work: Work, hosts: Sequence[HostType]) -> float:
    """Return the seconds of all epochs when each slot takes the next subtask as soon as it is free.

    No subtask is handed out before the epoch before last is closed (vcdl.loop.coordinator), so slots beyond twice the
    shards are always idle, and slow hosts keep fast ones waiting from about half as many slots as shards on.
    """
    cycles_s = [
        host.count * host.slots / host.subtasks_per_s(work.subtask.samples)
        for host in hosts
        for _ in range(round(host.count * host.slots))
    ]
    free = [(0.0, number) for number in range(len(cycles_s))]
    epochs = work.subtasks // work.shards
    rng, closed_s = np.random.default_rng(1), [0.0, 0.0]
    for _ in range(min(epochs, _EPOCHS_DEALT)):
        ends_s = []
        for factor in rng.uniform(1.0 - _SPREAD, 1.0 + _SPREAD, work.shards).tolist():
            free_s, slot = heapq.heappop(free)
            # A subtask begins no earlier than the epoch before last is closed: `rolling` is at most one epoch ahead.
            ends_s.append(max(free_s, closed_s[-2]) + factor * cycles_s[slot])
            heapq.heappush(free, (ends_s[-1], slot))
        closed_s.append(max(closed_s[-1], *ends_s))
    dealt = len(closed_s) - 2
    return closed_s[-1] * epochs / dealt if dealt else 0.0


def forecast(work: Work, choice: Choice, servers: Servers, deadline_s: float | None = None) -> ChoiceForecast:
    """Forecast the wall time and the cost of a job on a choice of hosts, as ranges over RUNS simulated outcomes.

    Args:
        work: The subtasks of the job.
        choice: The hosts and their price.
        servers: The parameter servers, which limit the speed.
        deadline_s: Seconds within which the job must end, or None. With a deadline, spot machines follow the Uniform
            Progress policy (vcdl.planner.deadline), and the forecast has the probability that the deadline is met.
    """
    rng = np.random.default_rng(1)
    speed = throughput(choice.hosts, servers, work.subtask)
    usual_s = undisturbed_s(work, choice.hosts, servers)
    walls, costs, kept = [], [], 0
    for factor in np.exp(rng.normal(0.0, work.error, RUNS)):
        work_s = usual_s * float(factor)
        if not math.isfinite(work_s):
            walls, costs = [math.inf], [math.inf]
            break
        # Without spot machines only the speed is random.
        if choice.spot_usd_per_h is None:
            wall_s = work_s + (choice.restart_s if choice.units else 0.0)
            usd = choice.on_demand_usd_per_h * wall_s / 3600.0
        else:
            wall_s, usd = _on_spot(choice, work_s, deadline_s, rng)
        walls.append(wall_s)
        costs.append(usd)
        kept += deadline_s is None or wall_s <= deadline_s
    return ChoiceForecast(choice, speed, OutcomeRange.of(walls), OutcomeRange.of(costs), kept / RUNS)


def _on_spot(choice: Choice, work_s: float, deadline_s: float | None, rng: np.random.Generator) -> tuple[float, float]:
    """Draw a spot market, and return the seconds and the US dollars of a job of `work_s` seconds in it."""
    until_s = work_s * _LONGEST if deadline_s is None else deadline_s
    # A job that is late is finished on demand, after its deadline.
    watched_s = until_s if deadline_s is None else deadline_s + work_s + 2.0 * choice.restart_s
    # Without a deadline a job mostly ends long before `until_s`, so the step follows from three times the work.
    step_s = min(_STEP_S, max(30.0, (work_s * 3.0 if deadline_s is None else max(deadline_s, work_s)) / _STEPS))
    spot, listed = choice.spot_usd_per_h or 0.0, choice.on_demand_usd_per_h
    policy = spot_only if deadline_s is None else uniform_progress
    steps, machines = math.ceil(watched_s / step_s) + 2, sum(host.count for host in choice.hosts)
    spot_share = SpotMarket().sample(step_s, steps, rng, machines)
    task = DeadlineTask(work_s, until_s, choice.restart_s, step_s)
    outcome = follow(policy, spot_share, task, spot / listed if listed else 1.0)
    usd = outcome.cost * (listed or spot)
    return outcome.wall_s, usd


@dataclass(frozen=True)
class Recommendation:
    """The recommended choice among forecasts, with the reason."""

    chosen: ChoiceForecast | None
    why: str
    front: tuple[ChoiceForecast, ...]
    """The Pareto front: forecasts for which no other one is both faster and cheaper, the fastest first."""


def recommend(
    forecasts: Sequence[ChoiceForecast], deadline_s: float | None = None, budget_usd: float | None = None
) -> Recommendation:
    """Pick the cheapest choice that meets the deadline; given only a budget, the fastest that fits it.

    Without both, pick the cheapest. A deadline is met if its probability is at least 0.9, a budget if the upper end of
    the cost's range is within it.

    Args:
        forecasts: The forecasts of all choices.
        deadline_s: Seconds within which the job must end, or None.
        budget_usd: The most that the job may cost, or None.

    Returns:
        A recommendation whose `chosen` is None if no choice fits.
    """
    best = sorted(forecasts, key=lambda one: (one.wall_s.median, one.usd.median))
    front: list[ChoiceForecast] = []
    for one in best:
        if not front or one.usd.median < front[-1].usd.median:
            front.append(one)
    fits = [one for one in forecasts if _fits(one, deadline_s, budget_usd)]
    if not fits:
        return Recommendation(None, "", tuple(front))
    if deadline_s is None and budget_usd is not None:
        return Recommendation(
            min(fits, key=lambda one: one.wall_s.median), "the fastest within the budget", tuple(front)
        )
    why = "the cheapest" if deadline_s is None else "the cheapest within the deadline"
    return Recommendation(min(fits, key=lambda one: (one.usd.median, one.wall_s.median)), why, tuple(front))


def _fits(one: ChoiceForecast, deadline_s: float | None, budget_usd: float | None) -> bool:
    """Return whether a choice meets deadline and budget, as far as given."""
    is_in_time = deadline_s is None or (one.kept >= 0.9 and one.wall_s.median <= deadline_s)
    return is_in_time and (budget_usd is None or one.usd.high <= budget_usd)
