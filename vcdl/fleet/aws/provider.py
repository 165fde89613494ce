"""AWS as the fleet sees it: the regions of the fleet file, taken together."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import boto3
from botocore.exceptions import BotoCoreError

from vcdl.errors import FleetError
from vcdl.fleet.aws.catalogue import Catalogue
from vcdl.fleet.aws.instances import RegionInstances
from vcdl.fleet.aws.launch import LaunchRequest, launch_in
from vcdl.fleet.aws.leftovers import Leftover, find_leftovers, remove
from vcdl.fleet.aws.refusal import AwsRefusal, refusal
from vcdl.fleet.aws.region import AwsRegion
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.provider import Launched, Problem, ProblemKind, Provider
from vcdl.fleet.settings import FleetSettings

_AT_A_TIME = 8
"""Regions that are asked at once."""
_P = TypeVar("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Pace:
    """Of a sweep."""

    look_every_s: float = 5.0
    at_most_s: float = 300.0
    """A machine takes some minutes to end at worst."""
    empty_looks: int = 2
    """In a row, before nothing is left: EC2 may not show for some seconds what was made just before."""


class _Place:
    """A region of the fleet file."""

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self.region = region
        self.catalogue = Catalogue(region, settings)
        self.instances = RegionInstances(region, settings.name, self.catalogue)


class AwsProvider(Provider):
    """Spot instances. Regions are used in the order of the fleet file: the next is asked for what the one before could not give."""

    def __init__(self, settings: FleetSettings, session: Any = None, pace: Pace | None = None) -> None:
        """`session`: a boto3.Session; None: credentials as boto3 finds them. Calls nothing yet; raises FleetNotAuthorised."""
        self.settings = settings
        self._pace = pace or Pace()
        try:
            self._session = session or boto3.Session()
        except BotoCoreError as error:  # AWS_PROFILE names a profile that is not there
            raise refusal(error, settings.places[0].region, "Session") from error
        names = dict.fromkeys(place.region for place in settings.places)
        self._places = {name: _Place(AwsRegion(self._session, name), settings) for name in names}

    def pools(self) -> Mapping[Pool, InstanceType]:
        return self._pools

    @cached_property
    def _pools(self) -> Mapping[Pool, InstanceType]:
        found = {
            pool: kind for pools in self._each(lambda place: place.catalogue.pools) for pool, kind in pools.items()
        }
        offered = {pool.type for pool in found}
        if lacking := [name for name in self.settings.instances.types if name not in offered]:
            raise FleetError(
                f"{', '.join(lacking)}: offered in none of the places as a spot instance that can boot the image; "
                "change `instances > types` or `places` in the fleet file"
            )
        return found

    def find(self) -> tuple[Instance, ...]:
        return tuple(instance for found in self._each(lambda place: place.instances.find()) for instance in found)

    def launch(self, pools: Sequence[Pool], units: int, token: str, user_data: str) -> Launched:
        unit = self.settings.capacity.unit
        places = [self._places[name] for name in self._places if any(pool.region == name for pool in pools)]
        instances: list[Instance] = []
        problems: list[Problem] = []
        for place in places:
            try:
                before = place.instances.of_launch(token)
            except AwsRefusal as refused:
                return Launched((), (Problem(None, refused.kind, str(refused)),))
            if before:
                # Made by this launch, whose caller did not live to see it; what it lacks is for the next one to decide.
                return Launched(tuple(instance for instance in before if instance.is_live))
        for place in places:
            missing = units - sum(instance.units(unit) for instance in instances)
            if missing <= 0:
                break
            here = {
                pool: kind for pool, kind in self.pools().items() if pool.region == place.region.name and pool in pools
            }
            request = LaunchRequest(here, missing, token, user_data)
            launched = launch_in(place.region, self.settings, place.catalogue.image, request)
            place.instances.made(launched.instances)
            instances += launched.instances
            problems += launched.problems
        return Launched(tuple(instances), tuple(problems))

    def mark_draining(self, ids: Sequence[str], since_s: float) -> None:
        for place, here in self._located(ids):
            place.instances.mark(here, since_s)

    def terminate(self, ids: Sequence[str]) -> None:
        for place, here in self._located(ids):
            place.instances.terminate(here)

    def leftovers(self) -> tuple[str, ...]:
        return tuple(str(one) for one in self._look(self._all_regions))

    def sweep(self) -> tuple[str, ...]:
        left = self._look(self._all_regions)
        regions = [r for r in self._all_regions if r.name in self._places or any(one.region is r for one in left)]
        give_up_s = time.monotonic() + self._pace.at_most_s
        empty_looks = 0
        while time.monotonic() < give_up_s:
            empty_looks = 0 if left else empty_looks + 1
            if empty_looks == self._pace.empty_looks:
                break
            remove(left)
            time.sleep(self._pace.look_every_s)
            left = self._look(regions)
        return tuple(str(one) for one in left)

    def close(self) -> None:
        others = self.__dict__.get("_all_regions", ())
        for region in {*(place.region for place in self._places.values()), *others}:
            region.close()

    def _located(self, ids: Sequence[str]) -> list[tuple[_Place, list[str]]]:
        """Ids by their place, which an id does not say. What is not found by the fleet's tag is gone, or none of ours."""
        places = self._places.values()
        if not all(any(place.instances.knows(id) for place in places) for id in ids):
            self.find()
        return [(place, [id for id in ids if place.instances.knows(id)]) for place in places]

    @cached_property
    def _all_regions(self) -> list[AwsRegion]:
        """All that the account has switched on: the fleet file may have named others when something was launched."""
        first = next(iter(self._places.values())).region
        names = [item["RegionName"] for item in first.call("describe_regions")["Regions"]]
        others = [AwsRegion(self._session, name) for name in names if name not in self._places]
        return [*(place.region for place in self._places.values()), *others]

    def _look(self, regions: Sequence[AwsRegion]) -> list[Leftover]:
        def look(region: AwsRegion) -> tuple[Leftover, ...]:
            try:
                return find_leftovers(region, self.settings.name)
            except AwsRefusal as refused:
                if refused.kind is ProblemKind.NOT_AUTHORISED and region.name not in self._places:
                    return ()  # an organisation may close regions; nothing can have been launched in one
                raise

        return [one for found in _side_by_side(look, regions, regions) for one in found]

    def _each(self, ask: Callable[[_Place], _T]) -> list[_T]:
        places = list(self._places.values())
        return _side_by_side(ask, places, [place.region for place in places])


def _side_by_side(ask: Callable[[_P], _T], subjects: Sequence[_P], regions: Sequence[AwsRegion]) -> list[_T]:
    """The answers of all; the first failure is raised."""
    for region in regions:
        region.connect()  # here, as a session makes clients in one thread only
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="aws") as threads:
        return list(threads.map(ask, subjects))
