"""The interface to a cloud. A provider carries out orders of the controller and decides nothing.

Everything that a provider creates carries the fleet's tags, and it finds things only by tag, so that the loss of a file
never makes a machine unknown. Every call may be repeated, even by two processes simultaneously.
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
"""Tag with the name of the fleet folder that wrote the lease (`FleetFolder.keeper`)."""
MARKET_TAG = "vcdl-on-demand"
"""Tag that only instances on demand have."""
LAUNCH_TAG = "vcdl-launch"
"""Tag with the token of the launch that made the instance; on GCP it is a label."""
_THREADS = 8
"""Most simultaneous calls: so few that the connection pools of the clouds' libraries are large enough."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ProviderProblem:
    """Why a launch got less than it wanted from a pool, which is then not used for a while."""

    pool: Pool
    kind: ProblemKind
    message: str
    """The cloud's code and message, on one line."""

    @property
    def words(self) -> str:
        """The problem as text, such as `quota: VcpuLimitExceeded: …`."""
        return f"{self.kind.value}: {self.message}"


@dataclass(frozen=True)
class LaunchResult:
    """The outcome of a launch, which may have succeeded in part."""

    instances: tuple[Instance, ...] = ()
    """The launched instances."""
    problems: tuple[ProviderProblem, ...] = ()
    """Why some pools gave fewer instances than they were asked for."""


@dataclass(frozen=True)
class Leftover:
    """A resource with the fleet's tag that costs money or could cause costs."""

    noun: str
    """Kind of the resource, such as `instance`."""
    id: str
    place: str
    """Region of the resource; on GCP its zone, or for a bulk insert its region."""

    def __str__(self) -> str:
        """Return a text such as `instance i-1 in us-east-1`."""
        return f"{self.noun} {self.id} in {self.place}"


@dataclass(frozen=True)
class TagScan:
    """The result of a search for everything with the fleet's tag."""

    found: tuple[Leftover, ...] = ()
    """The resources, in the order in which they should be removed."""
    away: tuple[str, ...] = ()
    """Why some places could not be queried, a line each; there may be more resources."""

    def lines(self) -> tuple[str, ...]:
        """Return a line for each resource, and for each place that could not be queried."""
        return (*map(str, self.found), *self.away)


@dataclass(frozen=True)
class SweepPace:
    """How `Provider.sweep` waits between its listings."""

    every_s: float = 5.0
    """Seconds between two listings; each wait is up to half as long again, so that two sweeps do not stay in step."""
    at_most_s: float = 300.0
    """Seconds after which a sweep gives up; the slowest machines take some minutes to end."""
    empty_looks: int = 2
    """Empty listings in a row that end a sweep, because a cloud may not list what it created in the last seconds."""


class Provider(ABC):
    """Manages one fleet in one cloud, in all places of its settings.

    A call does what it can in every region, and only then raises an error: FleetUnavailable (wait and call again),
    FleetNotAuthorised or FleetError, never an error of a client library. `find` raises only if no region answers; it
    lists unreachable regions in `away`, and other calls leave those out.
    """

    settings: FleetSettings
    keeper = ""
    """Name of the fleet folder, which launches and leases write as KEEPER_TAG, or an empty string for none."""
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
        """Create the provider of a fleet, without calling its cloud yet.

        Raises:
            FleetError: The client library is missing.
        """

    def marks(self, until_s: float | None) -> dict[str, str]:
        """Return the tags of an instance's lease, name → value.

        Args:
            until_s: Unix time at which the lease ends, or None for an instance without a lease.

        Returns:
            LEASE_TAG and KEEPER_TAG, each only if it has a value.
        """
        found = {LEASE_TAG: "" if until_s is None else str(int(until_s)), KEEPER_TAG: self.keeper}
        return {name: value for name, value in found.items() if value}

    @cached_property
    def _known_pools(self) -> dict[str, Mapping[Pool, InstanceType]]:
        """Region → its pools, for the regions that have answered in this process."""
        return {}

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Return the preemptible pools that the fleet file allows, with their machine types.

        Regions that are unreachable are left out. Each region is queried only once in a process.

        Raises:
            FleetError: No region answers; or all answer, and a type of the fleet file is offered nowhere.
        """
        regions, known = self.settings.regions, self._known_pools
        here = [region for region in regions if region not in self.away]
        answers, refusals = ask_all([region for region in here if region not in known], self.pools_in)
        # Keep the answers for the life of the process: types and zones change rarely, and querying them takes many
        # calls.
        known |= answers
        found = [known[region] for region in here if region in known]
        if not found:
            raise_first(refusals)
        pools = {pool: kind for some in found for pool, kind in some.items()}
        # Check the types only if every region has answered: one may be offered in an unreachable region.
        if len(found) == len(regions):
            _refuse_types_without_pool(self.settings, pools)
        return pools

    @abstractmethod
    def pools_in(self, region: str) -> Mapping[Pool, InstanceType]:
        """Query the preemptible pools that the fleet file allows in a region, with their machine types."""

    @abstractmethod
    def find(self) -> tuple[Instance, ...]:
        """Query all instances with the fleet's tag, in all regions, and set `away`.

        Ended instances are included as long as the cloud shows them, which is how their endings become known.
        """

    @abstractmethod
    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        """Launch instances until they provide `units` units; the last machine may exceed that.

        The regions are tried in the order of the pools. A shortage raises no error: it is among the problems.

        Args:
            pools: The pools to use: all preemptible, or all on demand.
            units: The capacity to launch.
            token: Identifies the launch, up to 36 of [a-z0-9-]; a repeated call with the same token launches nothing
                more, as far as the cloud can promise.
            user_data: The cloud-init file of the instances.
            until_s: Unix time at which the first lease ends, or None for the agent's default lease.
        """

    @abstractmethod
    def lease(self, ids: Sequence[str], until_s: float) -> None:
        """Write a lease until a Unix time into the tags of these instances, also to shorten it.

        Instances that no longer exist are ignored.
        """

    @abstractmethod
    def console(self, id: str) -> str:
        """Return the end of the instance's console output, or an empty string if the cloud gives none."""

    def last_words(self, id: str, lines: int, about: str = "") -> str:
        """Return the last lines of an instance's console as one text for a message, or why there are none.

        Args:
            id: The instance.
            lines: Most lines.
            about: A word that each line must contain, or an empty string for all lines.
        """
        try:
            said = [line.strip() for line in self.console(id).split("\n") if line.strip() and about in line]
        except FleetError as error:
            return str(error)
        return " │ ".join(said[-lines:]) or f"its console has no output{about and f' about {about}'}"

    @abstractmethod
    def terminate(self, ids: Sequence[str]) -> None:
        """Request the termination of instances, without waiting until they are gone; missing instances are ignored."""

    @abstractmethod
    def look(self, every_fleet: bool = False) -> TagScan:
        """List everything that carries the fleet's tag and still exists.

        Args:
            every_fleet: List the resources of all fleets of the account, whatever the tag's value.
        """

    @abstractmethod
    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        """Request the removal of leftovers, without waiting; return those that the account may not remove."""

    def begin_sweep(self) -> None:
        """Prepare a sweep; `sweep` calls it before its first listing. By default nothing is done."""
        return

    def look_around(self) -> TagScan:
        """List everything with the fleet's tag as `look` does, but return an error as part of the result."""
        try:
            return self.look()
        except FleetError as error:
            return TagScan(away=(str(error),))

    def sweep(self) -> tuple[str, ...]:
        """Remove everything with the fleet's tag, and wait until nothing is listed any more, for minutes if necessary.

        A place that fails does not stop the others, and is tried again. This gives up after `pace.at_most_s` seconds,
        or if only resources are left that the account may not remove.

        Returns:
            A line for each thing that still exists, and for each place that could not be queried; empty on success.
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
            # Do not wait if only resources are left that the account may not remove.
            is_hopeless = bool(denied) and denied == frozenset(look.found)
            if is_hopeless or (denied is not None and time.monotonic() >= give_up_s):
                rights = ("the account may not remove some of them: check its permissions",) if denied else ()
                return (*look.lines(), *rights)
            denied = self.remove(look.found)
            time.sleep(self.pace.every_s * random.uniform(1.0, 1.5))


def missing_units(units: int, instances: Iterable[Instance], unit: Unit) -> int:
    """Return how many of `units` units these instances do not provide; below 0 if they provide more."""
    return units - sum(instance.units(unit) for instance in instances)


def lease_of(mark: str | None) -> float | None:
    """Parse the value of LEASE_TAG.

    Args:
        mark: The value, or None if the instance has no such tag.

    Returns:
        The Unix time at which the lease ends; None without a lease; 0 for a malformed value, so that the instance is
        drained.
    """
    if mark is None:
        return None
    # Drain an instance whose tag somebody else wrote, instead of keeping it forever.
    return float(mark) if mark.isascii() and mark.isdigit() else 0.0


def ask_all(
    items: Iterable[Item], question: Callable[[Item], Answer]
) -> tuple[dict[Item, Answer], dict[Item, CloudRefusal]]:
    """Call a function for each item, in several threads, and collect results and refusals.

    Args:
        items: The items, such as regions or ids.
        question: The call to the cloud. Errors other than CloudRefusal are raised.

    Returns:
        Item → result, and item → refusal, in the order of the items. Each item is in one of the two.
    """

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
    """Raise the first of these refusals; do nothing if there are none."""
    for refused in refusals.values():
        raise refused


def _refuse_types_without_pool(settings: FleetSettings, pools: Mapping[Pool, InstanceType]) -> None:
    """Check that each type of the fleet file is offered somewhere, and that no GPU would be idle.

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
