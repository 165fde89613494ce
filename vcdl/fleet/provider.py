"""The interface to a cloud, which decides nothing.

All that a provider creates carries the fleet's tags, by which alone it finds things: losing a file loses nothing. Every
call may be repeated, also by two processes.
"""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeVar

from vcdl.errors import FleetError
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.refusal import CloudRefusal, ProblemKind
from vcdl.fleet.settings import FleetSettings, Unit

FLEET_TAG = "vcdl-fleet"
"""Its value is the fleet's name; on GCP it is a label."""
LEASE_TAG = "vcdl-until"
"""The lease (vcdl/fleet/reconciler.py): the Unix time, in whole seconds, until which an instance may work."""
KEEPER_TAG = "vcdl-keeper"
"""The name of the keeper that wrote the lease (vcdl/fleet/folder.py)."""
MARKET_TAG = "vcdl-on-demand"
"""On instances that are not preemptible."""
LAUNCH_TAG = "vcdl-launch"
"""Its value is the token of the launch that made the instance; on GCP it is a label."""
_THREADS = 8
"""Calls at the same time; fewer than the connections that the clouds' libraries keep."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ProviderProblem:
    """One reason why a launch fell short: the pool is left alone for a time."""

    pool: Pool
    kind: ProblemKind
    message: str
    """The cloud's code and words, on one line."""

    @property
    def words(self) -> str:
        """`quota: VcpuLimitExceeded: …`."""
        return f"{self.kind.value}: {self.message}"


@dataclass(frozen=True)
class LaunchResult:
    """The outcome of a launch."""

    instances: tuple[Instance, ...] = ()
    problems: tuple[ProviderProblem, ...] = ()


@dataclass(frozen=True)
class Leftover:
    """A resource with the tag that costs or could cost."""

    noun: str
    id: str
    place: str
    """Its region; on GCP its zone, or the region of an insert."""

    def __str__(self) -> str:
        """`instance i-1 in us-east-1`."""
        return f"{self.noun} {self.id} in {self.place}"


@dataclass(frozen=True)
class TagScan:
    """All resources with the tag, in the order in which they should be removed."""

    found: tuple[Leftover, ...] = ()
    away: tuple[str, ...] = ()
    """Why some places could not be asked, a line each: something may be left there."""

    def lines(self) -> tuple[str, ...]:
        """Return a line for each resource, and for each place that was not asked."""
        return (*map(str, self.found), *self.away)


@dataclass(frozen=True)
class SweepPace:
    """The times of a sweep."""

    every_s: float = 5.0
    """Between two looks; each wait is up to half as long again, so that two sweeps do not keep in step."""
    at_most_s: float = 300.0
    """The slowest machines take some minutes to end."""
    empty_looks: int = 2
    """Looks in a row that must find nothing: a cloud may hide what it has just made for some seconds."""


class Provider(ABC):
    """One fleet in one cloud, in all places of its settings. A region that is away is named in `away` and left out.

    A call does what it can everywhere, then may raise FleetUnavailable (wait and call again), FleetNotAuthorised or
    FleetError, but no error of a client library. `find` raises only if no region answers.
    """

    settings: FleetSettings
    keeper = ""
    """The value of KEEPER_TAG that launches and leases write; empty: none."""
    metadata_service: ClassVar[Literal["aws", "gcp"]]
    """The form of the metadata service on its machines, where their agent reads notices and the lease."""
    pace = SweepPace()
    shows_within_s = 600.0
    """The longest time for which the cloud may not show a new instance: AWS is eventually consistent."""
    clock_offset_s = 0.0
    """Seconds by which the cloud's clock is ahead of this machine's, by its last answer."""
    away: Mapping[str, str] = MappingProxyType({})
    """The regions that the last `find` did not reach, each with the reason: its instances are not among the found."""

    @classmethod
    @abstractmethod
    def of_fleet(cls, settings: FleetSettings) -> Self:
        """Return the provider of a fleet, without asking its cloud yet.

        Raises FleetError without its client library.
        """

    def marks(self, until_s: float | None) -> dict[str, str]:
        """Return the tags of a lease and its keeper, omitting unknown ones."""
        found = {LEASE_TAG: "" if until_s is None else str(int(until_s)), KEEPER_TAG: self.keeper}
        return {name: value for name, value in found.items() if value}

    @cached_property
    def _known_pools(self) -> dict[str, Mapping[Pool, InstanceType]]:
        """The pools by region."""
        return {}

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Return each allowed type, preemptible, in each place that offers it; asked once."""
        regions, known = self.settings.regions, self._known_pools
        here = [region for region in regions if region not in self.away]
        answers, refusals = asked([region for region in here if region not in known], self.pools_in)
        # Kept for the life of the process: types and zones change rarely, and describing them takes many calls.
        known |= answers
        found = [known[region] for region in here if region in known]
        if not found:
            raise_first(refusals)
        pools = {pool: kind for some in found for pool, kind in some.items()}
        # Only when every region has answered: a type may be offered in the one that is away.
        if len(found) == len(regions):
            _refuse_types_without_pool(self.settings, pools)
        return pools

    @abstractmethod
    def pools_in(self, region: str) -> Mapping[Pool, InstanceType]:
        """Return the pools of a region of the fleet file."""

    @abstractmethod
    def find(self) -> tuple[Instance, ...]:
        """Return all instances with the fleet's tag, in all places; ended ones too, as long as the cloud shows them."""

    @abstractmethod
    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        """Launch from any of the pools, first regions first, until at least `units` are there, by less than one more.

        A shortage is no exception.

        Args:
            pools: All preemptible, or all on demand.
            units: The capacity to launch.
            token: Up to 36 of [a-z0-9-]; a repeated call with it launches nothing more, as far as the cloud can
                promise.
            user_data: For cloud-init.
            until_s: The first lease; None: the agent's own.
        """

    @abstractmethod
    def lease(self, ids: Sequence[str], until_s: float) -> None:
        """Set or renew the lease of these instances, as tags. Ignore instances that no longer exist."""

    @abstractmethod
    def console(self, id: str) -> str:
        """Return the end of the instance's console output; empty if the cloud gives none."""

    def last_words(self, id: str, lines: int, about: str = "") -> str:
        """Return the last lines of an instance's console that contain a word, or why there are none."""
        try:
            said = [line.strip() for line in self.console(id).split("\n") if line.strip() and about in line]
        except FleetError as error:
            return str(error)
        return " │ ".join(said[-lines:]) or f"its console says nothing{about and f' of {about}'}"

    @abstractmethod
    def terminate(self, ids: Sequence[str]) -> None:
        """Have instances terminated, without waiting until they are gone; a missing one is no error."""

    @abstractmethod
    def look(self, every_fleet: bool = False) -> TagScan:
        """Return everything with the tag that still exists, with `every_fleet` whatever the tag's value."""

    @abstractmethod
    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        """Ask the cloud to remove them, without waiting; returns what the account may not remove."""

    def begin_sweep(self) -> None:
        """Called before the first look of a sweep."""
        return

    def look_around(self) -> TagScan:
        """Return the resources with the tag, or why there is no answer."""
        try:
            return self.look()
        except FleetError as error:
            return TagScan(away=(str(error),))

    def sweep(self) -> tuple[str, ...]:
        """Remove everything with the tag, and look until it is gone.

        A place that fails stops no other, and is tried again.

        Returns:
            A line for each thing that still exists, and each place that was not asked.
        """
        give_up_s = time.monotonic() + self.pace.at_most_s
        empty_looks = 0
        denied: frozenset[Leftover] | None = None
        self.begin_sweep()
        while True:
            look = self.look_around()
            empty_looks = 0 if look.lines() else empty_looks + 1
            if empty_looks == self.pace.empty_looks:
                return ()
            # Nothing else is left but what the account may not remove: waiting would not change that.
            is_hopeless = bool(denied) and denied == frozenset(look.found)
            if is_hopeless or (denied is not None and time.monotonic() >= give_up_s):
                rights = ("the account may not remove some of it: check its rights",) if denied else ()
                return (*look.lines(), *rights)
            denied = self.remove(look.found)
            time.sleep(self.pace.every_s * random.uniform(1.0, 1.5))


def missing_units(units: int, instances: Iterable[Instance], unit: Unit) -> int:
    """Return the part of `units` that these instances lack."""
    return units - sum(instance.units(unit) for instance in instances)


def lease_of(mark: str | None) -> float | None:
    """Return the time of a lease; None without one.

    A mark in another form counts as over, so that the instance goes.
    """
    if mark is None:
        return None
    # 0.0 is long over: a tag that somebody else wrote drains the instance instead of keeping it for ever.
    return float(mark) if mark.isascii() and mark.isdigit() else 0.0


def asked(
    items: Iterable[Item], question: Callable[[Item], Answer]
) -> tuple[dict[Item, Answer], dict[Item, CloudRefusal]]:
    """Return answers and refusals, in the order of the items; a refused one does not hold up the others."""

    def attempt(item: Item) -> Answer | CloudRefusal:
        try:
            return question(item)
        except CloudRefusal as refused:
            return refused

    items = list(items)
    # In threads: a region that is away holds its call until its time-outs and retries are over.
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="cloud") as threads:
        outcomes = list(zip(items, threads.map(attempt, items), strict=True))
    answers = {item: it for item, it in outcomes if not isinstance(it, CloudRefusal)}
    return answers, {item: it for item, it in outcomes if isinstance(it, CloudRefusal)}


def raise_first(refusals: Mapping[Any, CloudRefusal]) -> None:
    """Raise the first of these refusals, if there are any."""
    for refused in refusals.values():
        raise refused


def _refuse_types_without_pool(settings: FleetSettings, pools: Mapping[Pool, InstanceType]) -> None:
    """Raise FleetError for types of the fleet file that no place offers, and for GPUs that would not be used."""
    idle_gpus = sorted({kind.name for kind in pools.values() if kind.gpus}) if settings.capacity.unit != "gpu" else []
    if idle_gpus:
        raise FleetError(f"{', '.join(idle_gpus)}: the GPUs are used with `capacity > unit: gpu` only; change either")
    offered = {pool.type for pool in pools}
    if lacking := [name for name in settings.instances.types if name not in offered]:
        raise FleetError(
            f"no place of this fleet offers {', '.join(lacking)} as preemptible instances that can boot the image; "
            "change `instances > types` or `places` in the fleet file"
        )
    if not pools:
        raise FleetError("no place of this fleet offers a type that meets `instances > requirements`")
