"""Forecasts of `vcdl plan --population` beside simulated weeks that they have not seen.

    python -m benchmarks.bench_populations seen | changed | policies | shards

Each row is a job of about a week of work for its hosts, forecast once, and lived several times: hosts, their speeds and
absences are drawn by other seeds, the mean speed is off by the error of a measurement (`vcdl.planner.forecast`), and
subtasks differ by another jitter.

seen: the forecast knows which population it is. changed: it does not know that absences or speeds follow other numbers.
shards: forecasts with twice and four times the shards, whose subtasks are as much shorter.
policies: time, and subtasks begun in vain, with other settings in place of the default's: second copies, deadlines,
    lengths of subtasks, slots that grow.
"""

import argparse
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.bench_planner import DIGITS
from vcdl.job import Job, load_job
from vcdl.planner.forecast import MODEL_ERROR
from vcdl.simulate.client_fleet import ClientFleet, load_clients
from vcdl.simulate.host_forecast import HostForecast, JobOnHosts, range_words
from vcdl.simulate.population import HostGroup, Population
from vcdl.simulate.weightless import NoWork, WeightlessRun, simulated_s

_AS_VOLUNTEERS = ("second_copies=true", "timeout_s=86400", "checkpoint_every_s=60")
_FIRST_SEED = 10_000
"""Seeds of the weeks: far from those of the forecasts, which are 1 to 20."""


@dataclass(frozen=True)
class Case:
    """A job on a population."""

    population: str
    clients: int
    shards: int
    epochs: int
    subtask_h: float

    @property
    def settings(self) -> tuple[str, ...]:
        return f"data.shards={self.shards}", f"stop.epochs={self.epochs}", "stop.target_accuracy=null"

    @property
    def job(self) -> Job:
        return load_job(DIGITS, self.settings)

    @property
    def fleet(self) -> ClientFleet:
        given = f"population={self.population}", f"subtask_s={3600 * self.subtask_h}", f"clients={self.clients}"
        return load_clients(None, ("slots=1", *given, *_AS_VOLUNTEERS))

    @property
    def name(self) -> str:
        subtasks = f"{self.epochs} × {self.shards} subtasks of {self.subtask_h:g} h"
        return f"{self.clients} hosts of `{self.population}`, {subtasks}"


CASES = (
    Case("boinc", 100, 200, 24, 2.0),
    Case("boinc", 50, 50, 30, 2.0),
    Case("boinc", 200, 100, 30, 3.0),
    Case("spot", 60, 120, 50, 1.0),
    Case("spot", 100, 100, 40, 0.5),
    Case("lab", 60, 120, 20, 2.0),
    Case("lab", 40, 40, 30, 1.0),
)


def changed(population: Population, dice: random.Random) -> Population:
    """Return a population whose means are off by up to a quarter, as an operator's guess may be."""

    def other(group: HostGroup) -> HostGroup:
        names = ("share", "on_h", "off_h", "speed_spread", "stays_days")
        values = {name: getattr(group, name) for name in names}
        return group.model_copy(
            update={name: value * dice.uniform(0.75, 1.25) for name, value in values.items() if value}
        )

    return population.model_copy(update={"groups": tuple(map(other, population.groups))})


def weeks(case: Case, count: int, *, is_changed: bool) -> Iterator[float]:
    """Yield the seconds of simulated weeks."""
    for number in range(count):
        dice = random.Random(f"{case.name} {number}")
        factor = math.exp(dice.gauss(0.0, MODEL_ERROR))
        fleet = case.fleet
        update: dict[str, object] = {
            "seed": _FIRST_SEED + number,
            "subtask_s": fleet.subtask_s * factor,
            "jitter": dice.choice([0.1, 0.2, 0.4, 0.5]),
        }
        if is_changed and fleet.population is not None:
            update["population"] = changed(fleet.population, dice)
        yield simulated_s(case.job, fleet.model_copy(update=update))


@dataclass(frozen=True)
class Policy:
    """Settings that an operator or a default may choose."""

    name: str
    settings: tuple[str, ...] = ()
    fleet: tuple[tuple[str, float], ...] = ()
    cut: float = 1.0
    """Shards in place of one: subtasks are as much shorter."""

    def week(self, case: Case, number: int) -> tuple[float, int, float]:
        """Return a week's seconds, its subtasks, and the part of those begun that came to nothing."""
        population, dice = case.fleet.population, random.Random(f"policy {case.name} {number}")
        job = load_job(DIGITS, [*case.settings, f"data.shards={round(case.shards * self.cut)}", *self.settings])
        update: dict[str, object] = {
            "seed": 2 * _FIRST_SEED + number,
            "population": population and changed(population, dice),
            "subtask_s": case.fleet.subtask_s / self.cut,
            **dict(self.fleet),
        }
        run = WeightlessRun(job, case.fleet.model_copy(update=update), NoWork())
        return run.wall_s(), job.subtasks, 1 - job.subtasks / run.times.started


POLICIES = (
    Policy("as it is"),
    Policy("no second copies", ("pacing.late_after=null",)),
    *(Policy(f"second copies after {times} times", (f"pacing.late_after={times}",)) for times in (1.1, 1.25, 2, 3)),
    *(Policy(f"given up after {hours} h", fleet=(("timeout_s", 3600.0 * hours),)) for hours in (6, 12, 72)),
    *(Policy(f"{cut:g} times the shards", cut=cut) for cut in (0.5, 2, 4)),
    Policy("all slots at once", ("pacing.grows_over=0",)),
    Policy("slots grow over a tenth", ("pacing.grows_over=0.1",)),
)


def policies(count: int) -> Iterator[str]:
    """Yield a row for each policy and kind of population, over weeks whose populations were changed at random."""
    for name in ("boinc", "spot", "lab"):
        cases = [one for one in CASES if one.population == name]
        usual_s: list[float] = []
        for policy in POLICIES:
            lived = [policy.week(case, number) for case in cases for number in range(count)]
            took_s, vain = [wall_s for wall_s, _, _ in lived], [part for _, _, part in lived]
            usual_s = usual_s or took_s
            ratios = sorted(one / usual for one, usual in zip(took_s, usual_s, strict=True))
            between = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            yield f"| `{name}` | {policy.name} | {median(ratios):.3f} | {between} | {median(vain):.1%} |"


def shards() -> Iterator[str]:
    """Yield a row for each case in which hosts outnumber half of the shards."""
    for case in (one for one in CASES if 2 * one.clients > one.shards):
        on_hosts = JobOnHosts(case.job, case.fleet, MODEL_ERROR)
        cut = [on_hosts.cut(times * case.shards, 3600 * case.subtask_h / times) for times in (1, 2, 4)]
        yield f"| {case.name} | {' | '.join(range_words(one.on(case.clients).wall_s) for one in cut)} |"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["seen", "changed", "policies", "shards"])
    parser.add_argument("--weeks", type=int, default=20, help="of each row")
    options = parser.parse_args()
    if options.what in ("policies", "shards"):
        for row in shards() if options.what == "shards" else policies(options.weeks):
            print(row, flush=True)
        return
    inside, errors = 0, []
    for case in CASES:
        forecast = JobOnHosts(case.job, case.fleet, MODEL_ERROR).on(case.clients)
        lived = list(weeks(case, options.weeks, is_changed=options.what == "changed"))
        between = sum(forecast.wall_s.low <= one <= forecast.wall_s.high for one in lived)
        shown = range_words(HostForecast(case.clients, tuple(sorted(lived))).wall_s)
        off = [abs(forecast.wall_s.median / one - 1) for one in lived]
        foreseen = range_words(forecast.wall_s)
        print(f"| {case.name} | {foreseen} | {shown} | {between} of {len(lived)} | {median(off):.1%} |", flush=True)
        inside += between
        errors += off
    print(f"{inside} of {len(errors)} in the range, {inside / len(errors):.0%}; median error {median(errors):.1%}")


if __name__ == "__main__":
    main()
