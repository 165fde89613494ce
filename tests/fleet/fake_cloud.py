"""A small cloud in memory, with a clock of its own: pools with and without capacity, instances that come and go, refusals on demand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from vcdl.errors import FleetError
from vcdl.fleet.instance import Ending, Instance, InstanceType, Pool, State
from vcdl.fleet.provider import Launched, Problem, ProblemKind, Provider
from vcdl.fleet.settings import FleetSettings

TYPES = {
    "t3.2xlarge": InstanceType("t3.2xlarge", 8, 32.0),
    "c6i.xlarge": InstanceType("c6i.xlarge", 4, 8.0),
    "g4dn.xlarge": InstanceType("g4dn.xlarge", 4, 16.0, 1),
}


@dataclass
class Clock:
    """Unix time that only moves when it is told to."""

    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class FakeCloud(Provider):
    """All instances are of one fleet."""

    settings: FleetSettings
    clock: Clock = field(default_factory=Clock)
    empty: set[Pool] = field(default_factory=set)
    """Pools without capacity."""
    away: FleetError | None = None
    """What every call raises."""
    refuses: Problem | None = None
    """What every launch ends with."""
    instances: dict[str, Instance] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    """Units of each launch."""
    tokens: dict[str, Launched] = field(default_factory=dict)
    hides_s: float = 0.0
    """How long a new instance is not shown: AWS's eventual consistency."""
    _numbers: "count[int]" = field(default_factory=count)

    def pools(self) -> Mapping[Pool, InstanceType]:
        self._answer()
        return {
            Pool(self.settings.cloud, name, place.region, f"{place.region}{zone}"): TYPES[name]
            for name in self.settings.instances.types
            for place in self.settings.places
            for zone in "ab"
        }

    def find(self) -> tuple[Instance, ...]:
        self._answer()
        now_s = self.clock.now_s
        return tuple(i for i in self.instances.values() if now_s - i.launched_s >= self.hides_s)

    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> Launched:
        self._answer()
        if token in self.tokens:
            return self.tokens[token]
        launched = self._launch(pools, units)
        if launched.instances:
            self.tokens[token] = launched
        return launched

    def _launch(self, pools: Sequence[Pool], units: int) -> Launched:
        self.asked.append(units)
        if self.refuses is not None:
            return Launched((), (self.refuses,))
        problems = tuple(
            Problem(pool, ProblemKind.NO_CAPACITY, "InsufficientInstanceCapacity")
            for pool in pools
            if pool in self.empty
        )
        full = [pool for pool in pools if pool not in self.empty]
        made: list[Instance] = []
        while full and units > 0:
            pool = full[len(made) % len(full)]
            kind = TYPES[pool.type]
            made.append(
                Instance(f"i-{next(self._numbers):04d}", pool, kind.vcpus, kind.gpus, State.PENDING, self.clock.now_s)
            )
            units -= kind.units(self.settings.capacity.unit)
        self.instances.update({instance.id: instance for instance in made})
        return Launched(tuple(made), problems)

    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        self._answer()
        for name in ids:
            if name in self.instances and self.instances[name].draining_s is None:
                self._change(name, draining_s=since_s)

    def terminate(self, ids: Sequence[str]) -> None:
        self._answer()
        for name in ids:
            self.end(name, Ending.OURS)

    def leftovers(self) -> tuple[str, ...]:
        self._answer()
        return tuple(f"instance {i.id}" for i in self.instances.values() if i.state is not State.GONE)

    def sweep(self) -> tuple[str, ...]:
        self.terminate(list(self.instances))
        return self.leftovers()

    # -- what happens by itself

    def boot(self) -> None:
        """Pending instances run."""
        for instance in list(self.instances.values()):
            if instance.state is State.PENDING:
                self._change(instance.id, state=State.RUNNING)

    def end(self, name: str, ending: Ending = Ending.PREEMPTED) -> None:
        if name in self.instances and self.instances[name].state is not State.GONE:
            self._change(name, state=State.GONE, ended_s=self.clock.now_s, ending=ending)

    def switch_off(self, name: str) -> None:
        self._change(name, state=State.STOPPED)

    @property
    def live(self) -> list[Instance]:
        return [instance for instance in self.instances.values() if instance.is_live]

    def _change(self, name: str, **values: object) -> None:
        self.instances[name] = replace(self.instances[name], **values)  # type: ignore[arg-type]

    def _answer(self) -> None:
        if self.away is not None:
            raise self.away
