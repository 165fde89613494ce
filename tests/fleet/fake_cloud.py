"""A small cloud in memory with a clock of its own: pools with and without capacity, preemptions, refusals on demand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import count
from typing import Self

from vcdl.errors import FleetError
from vcdl.fleet.instance import Ending, Instance, InstanceState, InstanceType, Pool
from vcdl.fleet.prices import PriceTable, Quote
from vcdl.fleet.provider import LaunchResult, Leftover, Provider, ProviderProblem, SweepPace, TagScan
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import Cloud, FleetSettings

SPOT_USD_PER_H = {"t3.2xlarge": "0.09984", "c6i.xlarge": "0.068"}
"""The spot prices that the cloud quotes; a third type has none."""
TYPES = {
    "t3.2xlarge": InstanceType("t3.2xlarge", 8, 32.0),
    "c6i.xlarge": InstanceType("c6i.xlarge", 4, 8.0),
    "g4dn.xlarge": InstanceType("g4dn.xlarge", 4, 16.0, 1),
    "r6a.8xlarge": InstanceType("r6a.8xlarge", 32, 256.0),
}


@dataclass
class Clock:
    """Unix time that moves only by `sleep`."""

    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class FakeCloud(Provider):
    """All instances are of one fleet."""

    metadata_service = "aws"
    pace = SweepPace(0.0, 0.05, 1)
    settings: FleetSettings
    clock: Clock = field(default_factory=Clock)
    empty: set[Pool] = field(default_factory=set)
    """Pools without capacity."""
    outage: FleetError | None = None
    """The error that every call raises."""
    refuses: tuple[ProblemKind, str] | None = None
    """The problem of every pool in every launch."""
    away_regions: set[str] = field(default_factory=set)
    """Regions that do not answer."""
    dear_regions: set[str] = field(default_factory=set)
    """Regions whose spot prices are a tenth higher."""
    instances: dict[str, Instance] = field(default_factory=dict)
    quoted: int = 0
    """Requests for prices."""
    name: str = "a fake cloud"
    cloud: Cloud = "aws"
    asked: list[int] = field(default_factory=list)
    """The units of each launch."""
    tokens: dict[str, LaunchResult] = field(default_factory=dict)
    hides_s: float = 0.0
    """Time for which a new instance is not shown: AWS's eventual consistency."""
    said: str = "[  9.1] cloud-init\nvcdl-agent[4]: on aws\nvcdl-setup: no route to host\n"
    """The instances' consoles."""
    console_error: FleetError | None = None
    """The error that reading a console raises."""
    given: list[str] = field(default_factory=list)
    """The user data of each launch."""
    _numbers: "count[int]" = field(default_factory=count)

    @classmethod
    def of_fleet(cls, settings: FleetSettings) -> Self:
        return cls(settings)

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Asked each time, as outages come and go."""
        self._answer()
        here = [region for region in self.settings.regions if region not in self.away_regions]
        return {pool: kind for region in here for pool, kind in self.pools_in(region).items()}

    def pools_in(self, region: str) -> Mapping[Pool, InstanceType]:
        return {
            Pool(self.settings.cloud, name, region, f"{region}{zone}"): TYPES[name]
            for name in self.settings.instances.types
            for zone in "ab"
        }

    def find(self) -> tuple[Instance, ...]:
        self._answer()
        now_s = self.clock.now_s
        self.away = dict.fromkeys(self.away_regions, "EndpointConnectionError")
        shown = [i for i in self.instances.values() if i.pool.region not in self.away_regions]
        return tuple(i.at(now_s) for i in shown if now_s - i.launched_s >= self.hides_s)

    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        self._answer()
        if token in self.tokens:
            return self.tokens[token]
        self.given.append(user_data)
        launched = self._launch(pools, units, until_s)
        if launched.instances:
            self.tokens[token] = launched
        return launched

    def _launch(self, pools: Sequence[Pool], units: int, until_s: float | None) -> LaunchResult:
        self.asked.append(units)
        if self.refuses is not None:
            return LaunchResult((), tuple(ProviderProblem(pool, *self.refuses) for pool in pools))
        problems = tuple(
            ProviderProblem(pool, ProblemKind.NO_CAPACITY, "InsufficientInstanceCapacity")
            for pool in pools
            if pool in self.empty
        )
        full = [pool for pool in pools if pool not in self.empty]
        made: list[Instance] = []
        while full and units > 0:
            pool = full[len(made) % len(full)]
            kind = TYPES[pool.type]
            made.append(
                Instance(
                    id=f"i-{next(self._numbers):04d}", pool=pool, vcpus=kind.vcpus, gpus=kind.gpus,
                    state=InstanceState.PENDING, launched_s=self.clock.now_s, until_s=until_s, keeper=self.keeper,
                ),
            )  # fmt: skip
            units -= kind.units(self.settings.capacity.unit)
        self.instances.update({instance.id: instance for instance in made})
        return LaunchResult(tuple(made), problems)

    def quotes(self, types: Sequence[InstanceType], region: str) -> list[Quote]:
        """The cloud's prices."""
        self._answer()
        self.quoted += 1
        list_prices = PriceTable.load_shipped()
        return [
            Quote(
                kind.name,
                "",
                listed.on_demand_usd_per_h,
                Decimal(SPOT_USD_PER_H[kind.name]) * (Decimal("1.1") if region in self.dear_regions else 1),
            )
            for kind in types
            if kind.name in SPOT_USD_PER_H and (listed := list_prices.find(kind.name, region))
        ]

    def lease(self, ids: Sequence[str], until_s: float) -> None:
        self._answer()
        for name in self._reached(ids):
            self._change(name, until_s=until_s, keeper=self.keeper)

    def console(self, id: str) -> str:
        if self.console_error is not None:
            raise self.console_error
        return self.said

    def terminate(self, ids: Sequence[str]) -> None:
        self._answer()
        for name in self._reached(ids):
            self.end(name, Ending.OURS)

    def look(self, every_fleet: bool = False) -> TagScan:
        self._answer()
        there = [i for i in self.instances.values() if i.state is not InstanceState.GONE]
        shown = [i for i in there if i.pool.region not in self.away_regions]
        away = tuple(f"{region} is away" for region in sorted(self.away_regions))
        return TagScan(tuple(Leftover("instance", i.id, i.pool.region) for i in shown), away)

    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        for one in leftovers:
            self.end(one.id, Ending.OURS)
        return frozenset()

    def _reached(self, ids: Sequence[str]) -> list[str]:
        known = [name for name in ids if name in self.instances]
        return [name for name in known if self.instances[name].pool.region not in self.away_regions]

    # -- events

    def boot(self) -> None:
        """Let pending instances run."""
        for instance in list(self.instances.values()):
            if instance.state is InstanceState.PENDING:
                self._change(instance.id, state=InstanceState.RUNNING)

    def end(self, name: str, ending: Ending = Ending.PREEMPTED) -> None:
        if name in self.instances and self.instances[name].state is not InstanceState.GONE:
            self._change(name, state=InstanceState.GONE, ended_s=self.clock.now_s, ending=ending)

    def switch_off(self, name: str) -> None:
        self._change(name, state=InstanceState.STOPPED)

    def agents_act(self, drain_s: float, idle_s: float = math.inf) -> None:
        """End the instances whose agents would: those whose lease is over for the drain time, and idle ones."""
        now_s = self.clock.now_s
        for one in self.live:
            if one.until_s is not None and now_s >= one.until_s + drain_s:
                self.end(one.id, Ending.OURS)
            elif now_s >= one.launched_s + idle_s:
                self.end(one.id, Ending.GAVE_UP)

    @property
    def live(self) -> list[Instance]:
        return [instance.at(self.clock.now_s) for instance in self.instances.values() if instance.is_live]

    def _change(self, name: str, **values: object) -> None:
        self.instances[name] = replace(self.instances[name], **values)  # type: ignore[arg-type]

    def _answer(self) -> None:
        if self.outage is not None:
            raise self.outage
