"""The Provider for AWS: the regions of a fleet taken together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError

from vcdl.errors import FleetError
from vcdl.fleet.aws.images import copy_image, find_images, make_image
from vcdl.fleet.aws.launch import RegionalLaunch, launch_in
from vcdl.fleet.aws.leftovers import find_leftovers, remove
from vcdl.fleet.aws.places import Place, Places
from vcdl.fleet.aws.refusal import refusal
from vcdl.fleet.aws.region import AwsRegion, filter_by, fleet_filter
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import (
    FLEET_TAG,
    BakedImage,
    LaunchResult,
    Leftover,
    Look,
    Provider,
    ProviderProblem,
    SweepPace,
    baking_name,
    missing_units,
    refuse_types_without_pool,
)
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import FleetSettings


class AwsProvider(Provider):
    """A fleet of EC2 instances. A launch asks region after region in the order of its pools."""

    def __init__(self, settings: FleetSettings, session: Any = None, pace: SweepPace | None = None) -> None:
        """`session`: a boto3.Session; None: with the credentials that boto3 finds. Raises FleetNotAuthorised."""
        self.settings = settings
        self.pace = pace or SweepPace()
        try:
            boto = session or boto3.Session()
        except BotoCoreError as error:  # AWS_PROFILE names a missing profile
            raise refusal(error, settings.places[0].region, "Session") from error
        self._places = Places(boto, settings)

    def pools(self) -> Mapping[Pool, InstanceType]:
        _ = self._places.others  # refuses a region that is not enabled: AWS's own refusal is hard to read
        here = [place for place in self._places.configured if place.region.name not in self.away]
        answers, refusals = self._places.ask(here, lambda place: place.catalogue.pools)
        if refusals and not answers:
            raise next(iter(refusals.values()))
        found = {pool: kind for pools in answers.values() for pool, kind in pools.items()}
        if len(answers) == len(self._places.configured):
            refuse_types_without_pool(self.settings, found)
        return found

    def find(self) -> tuple[Instance, ...]:
        found, self.away = self._places.find()
        return tuple(found)

    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        by_region = {place.region.name: place for place in self._places.configured}
        places = [by_region[name] for name in dict.fromkeys(pool.region for pool in pools)]
        seen, refusals = self._places.ask(
            places, lambda place: (place.instances.of_launch(token), place.catalogue.image)
        )
        problems = [
            ProviderProblem(pool, refused.kind, str(refused))
            for place, refused in refusals.items()
            for pool in pools
            if pool.region == place.region.name
        ]
        if before := [instance for instances, _ in seen.values() for instance in instances]:
            # The caller with this token was killed before it saw them. The next pass launches what is still missing.
            return LaunchResult(tuple(instance for instance in before if instance.is_live))
        known = self.pools()
        chosen = {pool: kind for pool in pools if (kind := known.get(pool.as_spot))}
        instances: list[Instance] = []
        for place, (_, image) in seen.items():
            missing = missing_units(units, instances, self.settings.capacity.unit)
            if missing <= 0:
                break
            here = {pool: kind for pool, kind in chosen.items() if pool.region == place.region.name}
            request = RegionalLaunch(here, missing, token, user_data, until_s)
            launched = launch_in(place.region, self.settings, image, request)
            place.instances.remember(launched.instances)
            instances += launched.instances
            problems += launched.problems
            if any(problem.kind is ProblemKind.BAD_REQUEST for problem in launched.problems):
                place.catalogue.forget_image()
        return LaunchResult(tuple(instances), tuple(problems))

    def lease(self, ids: Sequence[str], until_s: float) -> None:
        self._each(ids, lambda place, here: place.instances.lease(here, until_s))

    def console(self, id: str) -> str:
        answers, _ = self._places.ask(self._places.used, lambda place: place.instances.console(id))
        return next((text for text in answers.values() if text), "")

    def terminate(self, ids: Sequence[str]) -> None:
        self._each(ids, lambda place, here: place.instances.terminate(here))

    def look(self, every_fleet: bool = False) -> Look:
        name = self.settings.name
        ours = filter_by("tag-key", FLEET_TAG) if every_fleet else fleet_filter(name, baking_name(name))
        away: list[str] = []
        places: list[Place] = list(self._places.configured)
        try:
            places += self._places.others
        except FleetError as error:
            away.append(f"the account's other regions are unknown: {error}")
        answers, refusals = self._places.ask(places, lambda place: find_leftovers(place.region, ours, every_fleet))
        away += [str(refused) for refused in refusals.values()]
        return Look(tuple(it for found in answers.values() for it in found), tuple(away))

    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        here = {one.place for one in leftovers}
        places = [place for place in self._places.known if place.region.name in here]
        denied, _ = self._places.ask(
            places, lambda p: remove(p.region, [one for one in leftovers if one.place == p.region.name])
        )
        return frozenset().union(*denied.values())

    def images(self) -> tuple[BakedImage, ...]:
        answers, refusals = self._places.ask(
            self._places.configured, lambda place: find_images(place.region, self.settings.name)
        )
        for refused in refusals.values():
            raise refused
        return tuple(image for found in answers.values() for image in found)

    def make_image(self, instance: Instance, setup: str, base: str) -> None:
        make_image(self._region(instance.pool.region), self.settings, instance.id, setup, base)

    def copy_image(self, image: BakedImage, region: str) -> None:
        copy_image(self._region(region), self.settings, image)

    def _region(self, name: str) -> AwsRegion:
        return next(place.region for place in self._places.configured if place.region.name == name)

    def close(self) -> None:
        self._places.close()

    def _each(self, ids: Sequence[str], act: Callable[[Place, list[str]], None]) -> None:
        """Act on ids in their places, which an id does not tell; then raise the first refusal.

        An instance that is not found by tag is gone or another's.
        """
        if not all(any(place.instances.knows(id) for place in self._places.used) for id in ids):
            self.find()
        located = {place: [id for id in ids if place.instances.knows(id)] for place in self._places.used}
        concerned = [place for place, here in located.items() if here]
        _, refusals = self._places.ask(concerned, lambda place: act(place, located[place]))
        for refused in refusals.values():
            raise refused
