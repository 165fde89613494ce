"""AWS as the fleet sees it: the regions of the fleet file, taken together."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from vcdl.errors import FleetError
from vcdl.fleet.aws.launch import LaunchRequest, launch_in
from vcdl.fleet.aws.leftovers import Leftover, find_leftovers, remove
from vcdl.fleet.aws.places import Place, Places
from vcdl.fleet.aws.refusal import AwsRefusal, refusal
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import Launched, Problem, ProblemKind, Provider
from vcdl.fleet.settings import FleetSettings


@dataclass(frozen=True)
class Pace:
    """Of a sweep."""

    look_every_s: float = 5.0
    at_most_s: float = 300.0
    """A machine takes some minutes to end at worst."""
    empty_looks: int = 2
    """In a row, before nothing is left: EC2 may not show for some seconds what was made just before."""


class AwsProvider(Provider):
    """Spot instances. Regions are used in the order of the fleet file: the next is asked for what the one before could not give."""

    def __init__(self, settings: FleetSettings, session: Any = None, pace: Pace | None = None) -> None:
        """`session`: a boto3.Session; None: credentials as boto3 finds them. Calls nothing yet; raises FleetNotAuthorised."""
        self.settings = settings
        self._pace = pace or Pace()
        try:
            boto = session or boto3.Session()
        except BotoCoreError as error:  # AWS_PROFILE names a profile that is not there
            raise refusal(error, settings.places[0].region, "Session") from error
        self._places = Places(boto, settings)

    def pools(self) -> Mapping[Pool, InstanceType]:
        return self._pools

    @cached_property
    def _pools(self) -> Mapping[Pool, InstanceType]:
        self._places.check()
        of_places = self._places.ask(self._places.of_file, lambda place: place.catalogue.pools)
        found = {pool: kind for pools in of_places for pool, kind in pools.items()}
        offered = {pool.type for pool in found}
        if lacking := [name for name in self.settings.instances.types if name not in offered]:
            raise FleetError(
                f"{', '.join(lacking)}: offered in none of the places as a spot instance that can boot the image; "
                "change `instances > types` or `places` in the fleet file"
            )
        return found

    def find(self) -> tuple[Instance, ...]:
        return tuple(self._places.find())

    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> Launched:
        unit = self.settings.capacity.unit
        regions = {pool.region for pool in pools}
        places = [place for place in self._places.of_file if place.region.name in regions]
        try:
            before = [instance for place in places for instance in place.instances.of_launch(token)]
            images = [place.catalogue.image for place in places]
        except AwsRefusal as refused:
            return Launched((), (Problem(None, refused.kind, str(refused)),))
        if before:
            # Made by this launch, whose caller did not live to see it; what it lacks is for the next one to decide.
            return Launched(tuple(instance for instance in before if instance.is_live))
        asked = frozenset(pools)
        chosen = {pool: kind for pool, kind in self.pools().items() if pool in asked}
        instances: list[Instance] = []
        problems: list[Problem] = []
        for place, image in zip(places, images, strict=True):
            missing = units - sum(instance.units(unit) for instance in instances)
            if missing <= 0:
                break
            here = {pool: kind for pool, kind in chosen.items() if pool.region == place.region.name}
            launched = launch_in(place.region, self.settings, image, LaunchRequest(here, missing, token, user_data))
            place.instances.made(launched.instances)
            instances += launched.instances
            problems += launched.problems
            if any(problem.kind is ProblemKind.BAD_REQUEST for problem in launched.problems):
                place.catalogue.forget_image()
        return Launched(tuple(instances), tuple(problems))

    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        for place, here in self._located(ids):
            place.instances.mark(here, since_s)

    def terminate(self, ids: Sequence[str]) -> None:
        for place, here in self._located(ids):
            place.instances.terminate(here)

    def leftovers(self) -> tuple[str, ...]:
        return tuple(str(one) for one in self._look(self._places.of_file, self._places.others))

    def sweep(self) -> tuple[str, ...]:
        left = self._look(self._places.of_file, self._places.others)
        others = [place for place in self._places.others if any(one.region is place.region for one in left)]
        give_up_s = time.monotonic() + self._pace.at_most_s
        empty_looks = 0
        while time.monotonic() < give_up_s:
            empty_looks = 0 if left else empty_looks + 1
            if empty_looks == self._pace.empty_looks:
                break
            remove(left)
            time.sleep(self._pace.look_every_s)
            left = self._look(self._places.of_file, others)
        return tuple(str(one) for one in left)

    def close(self) -> None:
        self._places.close()

    def _located(self, ids: Sequence[str]) -> list[tuple[Place, list[str]]]:
        """Ids by their place, which an id does not say. What is not found by the fleet's tag is gone, or none of ours."""
        if not all(any(place.instances.knows(id) for place in self._places.used) for id in ids):
            self.find()
        return [(place, [id for id in ids if place.instances.knows(id)]) for place in self._places.used]

    def _look(self, places: Sequence[Place], others: Sequence[Place]) -> list[Leftover]:
        def look(place: Place) -> tuple[Leftover, ...]:
            try:
                return find_leftovers(place.region, self.settings.name)
            except AwsRefusal as refused:
                if refused.kind is ProblemKind.NOT_AUTHORISED and place in others:
                    return ()  # closed by an organisation
                raise

        return [one for found in self._places.ask([*places, *others], look) for one in found]
