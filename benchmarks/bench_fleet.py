"""Fleets on bad days, in a cloud in memory with a virtual clock: what is left running, and what was spent.

    python -m benchmarks.bench_fleet

The passes, the folder, the ledger and the prices are real. Instances are t3.2xlarge, at 0.107 $/h as spot and 0.340 $/h
at list prices, with address and disk; what is spent is by the cloud's own records. A first hour in which the cloud
takes a machine back is free, as on AWS.
"""

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from tests.fleet import fake_cloud
from tests.fleet.fake_fleet import FakeFleet
from tests.fleet.test_prices import ROW
from vcdl.fleet.controller import Controller
from vcdl.fleet.instance import Ending
from vcdl.fleet.prices import PriceTable, refreshed_file

_EXTRAS_USD = 0.007192
SPOT_USD, LIST_USD = 0.09984 + _EXTRAS_USD, 0.3328 + _EXTRAS_USD
MUTE = "Debian GNU/Linux 12 vcdl-cifar ttyS0\n"
STEP_S = 120.0


@dataclass
class Day:
    """A fleet under its keepers, and agents that end what they would end."""

    path: Path
    keepers: list[FakeFleet] = field(default_factory=list)
    usd_per_h: float = SPOT_USD
    drain_s: float = 900.0
    idle_s: float = 1e9
    has_agents: bool = True
    paid_usd: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def keeper(self, *overrides: str, has_prices: bool = True) -> FakeFleet:
        """Add a keeper with a folder of its own; all see the same cloud."""
        folder = self.path / f"keeper-{len(self.keepers)}"
        folder.mkdir()
        made = FakeFleet.begun(folder, *overrides)
        if self.keepers:
            made.cloud = self.keepers[0].cloud
            made.controller = made.another_process()
        if not has_prices:
            made.controller = Controller(made.settings, made.cloud, made.folder, str, made.cloud.clock)
        self.keepers.append(made)
        return made

    def live(self, hours: float, keepers: int = 9) -> None:
        """Let hours pass with some of the keepers."""
        cloud = self.keepers[0].cloud
        for _ in range(round(hours * 3600 / STEP_S)):
            for keeper in self.keepers[:keepers]:
                keeper.controller.reconcile_once()
            for one in cloud.live:
                self.paid_usd[one.id] += self.usd_per_h * STEP_S / 3600
            self.keepers[0].later(STEP_S)
            if self.has_agents:
                cloud.agents_act(self.drain_s, self.idle_s)

    def at_list_prices(self) -> None:
        """From now on the cloud quotes and charges the list price."""
        self.usd_per_h, fake_cloud.SPOT_USD_PER_H["t3.2xlarge"] = LIST_USD, "0.3328"

    @property
    def usd(self) -> float:
        """What the cloud charges."""
        ended = self.keepers[0].cloud.instances.values()
        free = {
            one.id for one in ended if one.ending is Ending.PREEMPTED and (one.ended_s or 0) - one.launched_s < 3600
        }
        return sum(usd for id, usd in self.paid_usd.items() if id not in free)


def no_agent(day: Day) -> float | None:
    """Ten machines on which no agent starts, 30 h."""
    day.keeper("capacity.target=80").cloud.said = MUTE
    day.has_agents = False
    day.live(30)
    return None


def no_agent_nor_keeper(day: Day) -> float | None:
    """The same with a budget of 3 $, and no keeper after one pass: nothing of ours is anywhere (6 h)."""
    day.keeper("capacity.target=80", "budget_usd=3").cloud.said = MUTE
    day.has_agents = False
    day.live(STEP_S / 3600)
    day.live(6, keepers=0)
    return 3


def no_work(day: Day) -> float | None:
    """Five machines whose set-up can never succeed, 4 h."""
    day.keeper()
    day.idle_s = 1800.0
    day.live(4)
    return None


def end_of_budget(day: Day) -> float | None:
    """The end of a budget of 2 $."""
    day.keeper("budget_usd=2")
    day.live(12)
    return 2


def too_many(day: Day) -> float | None:
    """A hundred machines for 1 $, at list prices."""
    day.keeper("capacity={target: 800}", "budget_usd=1")
    day.at_list_prices()
    day.live(6)
    return 1


def abandoned(day: Day, budget_usd: float, hours: float) -> float:
    """One pass at list prices, then no keeper, and agents that hang."""
    day.keeper(f"budget_usd={budget_usd:g}")
    day.usd_per_h, day.drain_s = LIST_USD, 930.0
    day.live(STEP_S / 3600)
    day.live(hours, keepers=0)
    return budget_usd


def too_little(day: Day) -> float | None:
    """Five machines for 0.10 $; then no keeper, and agents that hang."""
    return abandoned(day, 0.1, 4)


def one_pass(day: Day) -> float | None:
    """One pass with a budget of 3 $, then no keeper; list prices, agents that hang."""
    return abandoned(day, 3, 8)


def dearer(day: Day) -> float | None:
    """A budget of 12 $, spot prices that rise to the list price, and no keeper from then on."""
    day.keeper("budget_usd=12")
    day.live(20)
    day.at_list_prices()
    day.live(4, keepers=0)
    return 12


def price_of_the_future(day: Day) -> float | None:
    """A budget of 3 $, and a cached spot price of 0.001 $ dated 2099; the cloud charges the list price."""
    return _with_price(day, replace(ROW, spot_usd_per_h=Decimal("0.001"), as_of=datetime(2099, 1, 1, tzinfo=UTC)))


def cached_list_price(day: Day) -> float | None:
    """The same with a cached list price of 0.03 $."""
    return _with_price(day, replace(ROW, on_demand_usd_per_h=Decimal("0.03"), spot_usd_per_h=Decimal("0.01")))


def _with_price(day: Day, row: object) -> float:
    refreshed_file().parent.mkdir(parents=True)
    PriceTable.of([row]).write(refreshed_file())  # type: ignore[list-item]
    day.keeper("budget_usd=3", has_prices=False)
    day.usd_per_h = LIST_USD
    day.live(8)
    return 3


def quote(day: Day) -> float | None:
    """A quote of 1e9 $/h, 2 h."""
    fake_cloud.SPOT_USD_PER_H["t3.2xlarge"] = "1000000000"
    day.keeper()
    day.live(2)
    return None


def two_keepers(day: Day) -> float | None:
    """Two keepers, of 5 and of 10 machines, 1 h."""
    day.keeper()
    day.keeper("capacity.target=80")
    day.live(1)
    return None


def takeover(day: Day) -> float | None:
    """The same; the first dies after half an hour (5 h)."""
    day.keeper()
    day.keeper("capacity.target=80")
    day.live(0.5)
    day.keepers.pop(0)
    day.live(4.5)
    return None


def no_keeper(day: Day) -> float | None:
    """A keeper for 6 h, then none for 6 h."""
    day.keeper()
    day.live(6)
    day.live(6, keepers=0)
    return None


def preempted(day: Day) -> float | None:
    """A machine is taken back every 20 min for 12 h, with a budget of 3 $."""
    cloud = day.keeper("budget_usd=3").cloud
    for _ in range(36):
        day.live(1 / 3)
        for one in cloud.live[:1]:
            cloud.end(one.id, Ending.PREEMPTED)
    return 3


SCENARIOS: tuple[Callable[[Day], float | None], ...] = (
    no_agent, no_agent_nor_keeper, no_work, end_of_budget, too_many, too_little, one_pass, dearer, price_of_the_future,
    cached_list_price, quote, two_keepers, takeover, no_keeper, preempted,
)  # fmt: skip


@contextmanager
def own_prices(folder: Path) -> Iterator[None]:
    """Fetched prices and quotes of one scenario only."""
    before: Mapping[str, str] = dict(fake_cloud.SPOT_USD_PER_H)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    yield
    fake_cloud.SPOT_USD_PER_H.update(before)


def main() -> None:
    """Print a table in Markdown."""
    print("| Scenario | Launched | Left running | Spent | Budget |\n| -- | -- | -- | -- | -- |")
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as path, own_prices(Path(path)):
            day = Day(Path(path))
            try:
                budget = scenario(day)
                failed = ""
            except Exception as error:  # a pass that fails is a result, too
                budget, failed = None, f"; every pass fails: {type(error).__name__}"
            cloud = day.keepers[0].cloud
            limit = "none" if budget is None else f"{budget:g} $"
            words = (scenario.__doc__ or "").strip().removesuffix(".")
            row = f"{len(cloud.instances)} | {len(cloud.live)}{failed} | {day.usd:.2f} $ | {limit}"
            print(f"| {words} | {row} |", flush=True)


if __name__ == "__main__":
    main()
