"""A cloud, as the fleet sees it. Providers only speak to their cloud: what should be there is decided in the reconciler.

All that a provider makes carries the fleet's tags: `vcdl-fleet` = settings.name, and those of settings.tags. It finds only by that
tag, so that nothing of a fleet can be lost by losing a file. Every call may be made twice, and may be made by two processes at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vcdl.fleet.instance import Instance, InstanceType, Pool

FLEET_TAG = "vcdl-fleet"
"""Its value is the fleet's name; on GCP a label."""
DRAIN_TAG = "vcdl-drain"
"""Its value is a Unix time in whole seconds; see vcdl/fleet/drain.py."""


class ProblemKind(StrEnum):
    """Why a launch fell short, by what helps."""

    NO_CAPACITY = "no_capacity"
    """The pool has none: let it rest, and try the others."""
    QUOTA = "quota"
    """The account's limit: ask the cloud for more, or lower the target."""
    THROTTLED = "throttled"
    """Too many calls: wait."""
    NOT_AUTHORISED = "not_authorised"
    """Credentials that are missing, expired or lack a right: mend them."""
    BAD_REQUEST = "bad_request"
    """Something in the fleet file that this cloud does not know: an image, a subnet, a type."""
    UNAVAILABLE = "unavailable"
    """The cloud's fault, or the way to it: wait."""


@dataclass(frozen=True)
class Problem:
    """One refusal of a launch."""

    pool: Pool | None
    """None: of the whole launch."""
    kind: ProblemKind
    message: str
    """The cloud's code and words, on one line."""


@dataclass(frozen=True)
class Launched:
    """What came of a launch."""

    instances: tuple[Instance, ...] = ()
    problems: tuple[Problem, ...] = ()


class Provider(ABC):
    """One fleet in one cloud, in all the places of its settings.

    All calls raise FleetUnavailable (throttled, cut off, the cloud's fault: wait and call again), FleetNotAuthorised (credentials) or
    FleetError (any other refusal), each with the cloud's words; no exception of a client library comes out.
    """

    @abstractmethod
    def pools(self) -> Mapping[Pool, InstanceType]:
        """Each type that the settings allow, in each place that offers it, with what the cloud says of the type.

        From `instances.types`, or all that meet `instances.requirements`. Asked of the cloud once and then remembered.
        """

    @abstractmethod
    def find(self) -> tuple[Instance, ...]:
        """All with the fleet's tag, in all places; also those that ended lately, as long as the cloud shows them."""

    @abstractmethod
    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> Launched:
        """Preemptible instances that together count for at least `units` of settings.capacity.unit, from any of the pools.

        Synchronous; what could not be had is among the problems and no exception. Instances exceed `units` by less than one of them.
        `token`: at most 36 characters [a-z0-9-] (a UUID); the same token with the same arguments launches once, where the cloud can
        promise that.
        """

    @abstractmethod
    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        """Write DRAIN_TAG where the instances' own metadata shows it. Those that carry it already keep their time; NotFound is no error."""

    @abstractmethod
    def terminate(self, ids: Sequence[str]) -> None:
        """End these; one that is not found is gone. Returns when the cloud has taken it on, not when they are gone."""

    @abstractmethod
    def leftovers(self) -> tuple[str, ...]:
        """Everything that carries the tag and costs, or could: one line each (`instance i-1 in us-east-1`, `launch template lt-1 …`).

        Instances that are gone do not count; those that are stopping do, until they are gone.
        """

    @abstractmethod
    def sweep(self) -> tuple[str, ...]:
        """End and delete all that carries the tag, wait (at most some minutes) until it is gone; returns the leftovers: empty when none."""

    def close(self) -> None:
        """Let go of connections."""
        return
