"""The interface to a cloud, which carries out orders and decides nothing.

Everything that a provider creates carries the fleet's tags, and it finds things only by tag, so that losing a file
never loses a machine. Every call may be repeated, even by two processes.
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
"""Tag of everything that belongs to a fleet; its value is the fleet's name. On GCP it is a label."""
LEASE_TAG = "vcdl-until"
"""Tag of the lease (vcdl/fleet/reconciler.py): Unix time, in whole seconds, until which an instance may work."""
KEEPER_TAG = "vcdl-keeper"
"""Tag with the name of the keeper that wrote the lease (vcdl/fleet/folder.py)."""
MARKET_TAG = "vcdl-on-demand"
"""Tag of instances that are not preemptible."""
LAUNCH_TAG = "vcdl-launch"
"""Tag with the token of the launch that made the instance; on GCP it is a label."""
_THREADS = 8
"""Simultaneous calls: so few that the connection pools of the clouds' libraries are large enough."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ProviderProblem:
    """One reason why a launch fell short; the pool is not used for a time."""

    pool: Pool
    kind: ProblemKind
    message: str
    """The cloud's code and message, on one line."""

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
    """Region of the resource; on GCP its zone, or the region of an insert."""

    def __str__(self) -> str:
        """`instance i-1 in us-east-1`."""
        return f"{self.noun} {self.id} in {self.place}"


@dataclass(frozen=True)
class TagScan:
    """All resources with the tag, in the order in which they should be removed."""

    found: tuple[Leftover, ...] = ()
    away: tuple[str, ...] = ()
    """Why some places could not be queried, a line each; resources may remain there."""

    def lines(self) -> tuple[str, ...]:
        """Return a line for each resource, and for each place that was not queried."""
        return (*map(str, self.found), *self.away)


@dataclass(frozen=True)
class SweepPace:
    """The times of a sweep."""

    every_s: float = 5.0
    """Seconds between two listings; each wait is up to half as long again, so that two sweeps do not stay in step."""
    at_most_s: float = 300.0
    """Seconds after which a sweep gives up; the slowest machines take some minutes to end."""
    empty_looks: int = 2
    """Empty listings in a row that end a sweep: a cloud may not list what it created in the last seconds."""


class Provider(ABC):
    """One fleet in one cloud, in all places of its settings. An unreachable region is listed in `away` and omitted.

    A call does what it can everywhere, then may raise FleetUnavailable (wait and call again), FleetNotAuthorised or
    FleetError, but no error of a client library. `find` raises only if no region answers.
    """

    settings: FleetSettings
    keeper = ""
    """Value of KEEPER_TAG that launches and leases write, or an empty string for none."""
    metadata_service: ClassVar[Literal["aws", "gcp"]]
    """Form of the metadata service on the cloud's machines, where the agent reads notices and the lease."""
    pace = SweepPace()
    shows_within_s = 600.0
    """Most seconds for which the cloud may not show a new instance: AWS is eventually consistent."""
    clock_offset_s = 0.0
    """Seconds by which the cloud's clock is ahead of this machine's, by its last answer."""
    away: Mapping[str, str] = MappingProxyType({})
    """Regions that the last `find` did not reach, each with the reason; their instances were not returned."""

    @classmethod
    @abstractmethod
    def of_fleet(cls, settings: FleetSettings) -> Self:
        """Return the provider of a fleet, without calling its cloud yet.

        Raises:
            FleetError: The client library is missing.
        """

    def marks(self, until_s: float | None) -> dict[str, str]:
        """Return the tags of a lease and its keeper, without unknown ones."""
        found = {LEASE_TAG: "" if until_s is None else str(int(until_s)), KEEPER_TAG: self.keeper}
        return {name: value for name, value in found.items() if value}

    @cached_property
    def _known_pools(self) -> dict[str, Mapping[Pool, InstanceType]]:
        """The pools by region, once they were queried."""
        return {}

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Return the preemptible pools of all regions that answer, with their instance types.

        Each region is queried once in a process.
        """
        regions, known = self.settings.regions, self._known_pools
        here = [region for region in regions if region not in self.away]
        answers, refusals = ask_all([region for region in here if region not in known], self.pools_in)
        # Keep them for the life of the process: types and zones change rarely, and describing them takes many calls.
        known |= answers
        found = [known[region] for region in here if region in known]
        if not found:
            raise_first(refusals)
        pools = {pool: kind for some in found for pool, kind in some.items()}
        # Check this only if every region has answered: a type may be offered in an unreachable region.
        if len(found) == len(regions):
            _refuse_types_without_pool(self.settings, pools)
        return pools

    @abstractmethod
    def pools_in(self, region: str) -> Mapping[Pool, InstanceType]:
        """Return the pools of a region of the fleet file."""

    @abstractmethod
    def find(self) -> tuple[Instance, ...]:
        """Return all instances with the fleet's tag, in all places, including ended ones while the cloud shows them."""

    @abstractmethod
    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        """Launch from any of the pools, first regions first, until they give `units` units or up to one more machine.

        A shortage does not raise an error.

        Args:
            pools: The pools to use: all preemptible, or all on demand.
            units: The capacity to launch.
            token: Up to 36 of [a-z0-9-]; a repeated call with the same token launches nothing more, as far as the cloud
                can promise.
            user_data: For cloud-init.
            until_s: Unix time at which the first lease ends, or None for the agent's default lease.
        """

    @abstractmethod
    def lease(self, ids: Sequence[str], until_s: float) -> None:
        """Set or renew the lease of these instances, as tags. Ignore instances that no longer exist."""

    @abstractmethod
    def console(self, id: str) -> str:
        """Return the end of the instance's console output, or an empty string if the cloud gives none."""

    def last_words(self, id: str, lines: int, about: str = "") -> str:
        """Return the last lines of an instance's console that contain a word, or why there are none."""
        try:
            said = [line.strip() for line in self.console(id).split("\n") if line.strip() and about in line]
        except FleetError as error:
            return str(error)
        return " │ ".join(said[-lines:]) or f"its console has no output{about and f' about {about}'}"

    @abstractmethod
    def terminate(self, ids: Sequence[str]) -> None:
        """Have instances terminated, without waiting until they are gone; missing instances are ignored."""

    @abstractmethod
    def look(self, every_fleet: bool = False) -> TagScan:
        """Return everything with the tag that still exists, and with `every_fleet` whatever the tag's value."""

    @abstractmethod
    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        """Request the removal of leftovers, without waiting; return those that the account may not remove."""

    def begin_sweep(self) -> None:
        """Prepare a sweep; called before its first listing."""
        return

    def look_around(self) -> TagScan:
        """Return the resources with the tag, or why the cloud does not answer."""
        try:
            return self.look()
        except FleetError as error:
            return TagScan(away=(str(error),))

    def sweep(self) -> tuple[str, ...]:
        """Remove everything with the tag, and list it again until nothing is left.

        A place that fails does not stop the others, and is retried.

        Returns:
            A line for each thing that still exists, and each place that was not queried.
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
            # Only resources are left that the account may not remove: waiting would not change that.
            is_hopeless = bool(denied) and denied == frozenset(look.found)
            if is_hopeless or (denied is not None and time.monotonic() >= give_up_s):
                rights = ("the account may not remove some of them: check its permissions",) if denied else ()
                return (*look.lines(), *rights)
            denied = self.remove(look.found)
            time.sleep(self.pace.every_s * random.uniform(1.0, 1.5))


def missing_units(units: int, instances: Iterable[Instance], unit: Unit) -> int:
    """Return the part of `units` that these instances do not provide."""
    return units - sum(instance.units(unit) for instance in instances)


def lease_of(mark: str | None) -> float | None:
    """Return the end of a lease as Unix time; None without one.

    A mark in another form means a lease that is over, so that the instance is drained.
    """
    if mark is None:
        return None
    # 0.0 is long over: a tag that somebody else wrote drains the instance instead of keeping it for ever.
    return float(mark) if mark.isascii() and mark.isdigit() else 0.0


def ask_all(
    items: Iterable[Item], question: Callable[[Item], Answer]
) -> tuple[dict[Item, Answer], dict[Item, CloudRefusal]]:
    """Return answers and refusals, in the order of the items; a refused item does not delay the others."""

    def attempt(item: Item) -> Answer | CloudRefusal:
        try:
            return question(item)
        except CloudRefusal as refused:
            return refused

    items = list(items)
    # Use threads, because a call to an unreachable region blocks until its time-outs and retries are over.
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="cloud") as threads:
        outcomes = list(zip(items, threads.map(attempt, items), strict=True))
    answers = {item: it for item, it in outcomes if not isinstance(it, CloudRefusal)}
    return answers, {item: it for item, it in outcomes if isinstance(it, CloudRefusal)}


def raise_first(refusals: Mapping[Any, CloudRefusal]) -> None:
    """Raise the first of these refusals, if there are any."""
    for refused in refusals.values():
        raise refused


def _refuse_types_without_pool(settings: FleetSettings, pools: Mapping[Pool, InstanceType]) -> None:
    """Check that each type of the fleet file is offered somewhere, and that GPUs would be used.

    Raises:
        FleetError: A type has no pool, or a GPU type would be launched only for its CPUs.
    """
    idle_gpus = sorted({kind.name for kind in pools.values() if kind.gpus}) if settings.capacity.unit != "gpu" else []
    if idle_gpus:
        raise FleetError(f"{', '.join(idle_gpus)}: GPUs are used only with `capacity > unit: gpu`; change either")
    offered = {pool.type for pool in pools}
    if lacking := [name for name in settings.instances.types if name not in offered]:
        raise FleetError(
            f"no place of this fleet offers {', '.join(lacking)} as preemptible instances that can boot the image; "
            "change `instances > types` or `places` in the fleet file"
        )
    if not pools:
        raise FleetError("no place of this fleet offers a type that meets `instances > requirements`")
