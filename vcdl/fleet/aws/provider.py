"""The Provider for AWS: the regions of a fleet taken together."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from vcdl.fleet.aws.launch import RegionalLaunch, launch_in
from vcdl.fleet.aws.leftovers import Leftover, find_leftovers, remove
from vcdl.fleet.aws.places import Place, Places
from vcdl.fleet.aws.refusal import refusal
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import (
    LaunchResult,
    ProblemKind,
    Provider,
    ProviderProblem,
    missing_units,
    refuse_types_without_pool,
)
from vcdl.fleet.refusal import CloudRefusal
from vcdl.fleet.settings import FleetSettings


@dataclass(frozen=True)
class SweepPace:
    """The times of a sweep."""

    every_s: float = 5.0
    at_most_s: float = 300.0
    """The slowest machines take some minutes to end."""
    empty_looks: int = 2
    """Looks in a row that must find nothing: EC2 may hide what it has just made for some seconds."""


class AwsProvider(Provider):
    """A fleet of spot instances. A launch asks region after region in the order of the fleet file."""

    def __init__(self, settings: FleetSettings, session: Any = None, pace: SweepPace | None = None) -> None:
        """`session`: a boto3.Session; None: with the credentials that boto3 finds. Raises FleetNotAuthorised."""
        self.settings = settings
        self._pace = pace or SweepPace()
        try:
            boto = session or boto3.Session()
        except BotoCoreError as error:  # AWS_PROFILE names a missing profile
            raise refusal(error, settings.places[0].region, "Session") from error
        self._places = Places(boto, settings)

    def pools(self) -> Mapping[Pool, InstanceType]:
        return self._pools

    @cached_property
    def _pools(self) -> Mapping[Pool, InstanceType]:
        self._places.check()
        of_places = self._places.ask(self._places.configured, lambda place: place.catalogue.pools)
        found = {pool: kind for pools in of_places for pool, kind in pools.items()}
        refuse_types_without_pool(self.settings, found)
        return found

    def find(self) -> tuple[Instance, ...]:
        return tuple(self._places.find())

    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> LaunchResult:
        regions = {pool.region for pool in pools}
        places = [place for place in self._places.configured if place.region.name in regions]
        try:
            before = [instance for place in places for instance in place.instances.of_launch(token)]
            images = [place.catalogue.image for place in places]
        except CloudRefusal as refused:
            return LaunchResult((), (ProviderProblem(None, refused.kind, str(refused)),))
        if before:
            # The caller with this token was killed before it saw them. The next pass launches what is still missing.
            return LaunchResult(tuple(instance for instance in before if instance.is_live))
        asked = frozenset(pools)
        chosen = {pool: kind for pool, kind in self.pools().items() if pool in asked}
        instances: list[Instance] = []
        problems: list[ProviderProblem] = []
        for place, image in zip(places, images, strict=True):
            missing = missing_units(units, instances, self.settings.capacity.unit)
            if missing <= 0:
                break
            here = {pool: kind for pool, kind in chosen.items() if pool.region == place.region.name}
            launched = launch_in(place.region, self.settings, image, RegionalLaunch(here, missing, token, user_data))
            place.instances.remember(launched.instances)
            instances += launched.instances
            problems += launched.problems
            if any(problem.kind is ProblemKind.BAD_REQUEST for problem in launched.problems):
                place.catalogue.forget_image()
        return LaunchResult(tuple(instances), tuple(problems))

    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        for place, here in self._located(ids):
            place.instances.mark(here, since_s)

    def terminate(self, ids: Sequence[str]) -> None:
        for place, here in self._located(ids):
            place.instances.terminate(here)

    def leftovers(self) -> tuple[str, ...]:
        return tuple(str(leftover) for leftover in self._leftovers(self._places.others))

    def sweep(self) -> tuple[str, ...]:
        left = self._leftovers(self._places.others)
        others = [place for place in self._places.others if any(it.region is place.region for it in left)]
        give_up_s = time.monotonic() + self._pace.at_most_s
        empty_looks = 0
        while time.monotonic() < give_up_s:
            empty_looks = 0 if left else empty_looks + 1
            if empty_looks == self._pace.empty_looks:
                break
            remove(left)
            time.sleep(self._pace.every_s)
            left = self._leftovers(others)
        return tuple(str(leftover) for leftover in left)

    def close(self) -> None:
        self._places.close()

    def _located(self, ids: Sequence[str]) -> list[tuple[Place, list[str]]]:
        """Ids by their place, which an id does not tell. An instance that is not found by tag is gone or another's."""
        if not all(any(place.instances.knows(id) for place in self._places.used) for id in ids):
            self.find()
        return [(place, [id for id in ids if place.instances.knows(id)]) for place in self._places.used]

    def _leftovers(self, others: Sequence[Place]) -> list[Leftover]:
        """Leftovers in the regions of the file and in these others."""

        def find(place: Place) -> tuple[Leftover, ...]:
            try:
                return find_leftovers(place.region, self.settings.name)
            except CloudRefusal as refused:
                if refused.kind is ProblemKind.NOT_AUTHORISED and place in others:
                    return ()  # closed by an organisation
                raise

        return [it for found in self._places.ask([*self._places.configured, *others], find) for it in found]
