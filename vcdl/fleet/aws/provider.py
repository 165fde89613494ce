"""The Provider for AWS.

It serves the regions of the fleet file, and other regions in which the fleet still has instances.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from vcdl.errors import FleetError
from vcdl.fleet.aws.instances import AwsPlace
from vcdl.fleet.aws.launch import RegionalLaunch
from vcdl.fleet.aws.leftovers import find_leftovers, remove
from vcdl.fleet.aws.prices import AwsPrices
from vcdl.fleet.aws.region import AwsRegion, filter_by, fleet_filter, session_or
from vcdl.fleet.instance import Instance, InstanceType, Pool
from vcdl.fleet.prices import PriceTable
from vcdl.fleet.provider import (
    FLEET_TAG,
    Answer,
    LaunchResult,
    Leftover,
    Provider,
    ProviderProblem,
    SweepPace,
    TagScan,
    ask_all,
    missing_units,
    raise_first,
)
from vcdl.fleet.refusal import CloudRefusal, ProblemKind
from vcdl.fleet.settings import FleetSettings


class AwsProvider(Provider):
    """Manages a fleet of EC2 instances.

    A launch tries one region after the other, in the order of its pools. Other regions of the account are searched for
    instances of the fleet, too, because an earlier fleet file may have named them.
    """

    metadata_service = "aws"

    @classmethod
    def of_fleet(cls, settings: FleetSettings) -> Self:
        return cls(settings)

    @classmethod
    def price_source(cls, environment: Mapping[str, str], known: PriceTable | None = None) -> AwsPrices:
        return AwsPrices(known=known)

    def __init__(self, settings: FleetSettings, session: Any = None, pace: SweepPace | None = None) -> None:
        """Prepare the provider.

        Args:
            settings: The fleet file.
            session: A boto3.Session, or None for one with the credentials that boto3 finds.
            pace: How a sweep waits, or None for the defaults.

        Raises:
            FleetNotAuthorised: There are no credentials.
        """
        self.settings = settings
        self.pace = pace or SweepPace()
        self._session = session_or(session, settings.places[0].region)
        self._configured = self._places(settings.regions)
        self._used = list(self._configured)
        """Regions that each pass queries: those of the fleet file, and others in which instances were found."""
        self._unanswered: Sequence[AwsPlace] | None = None
        """Other regions of the account that have not answered yet, or None before they were queried."""

    @property
    def clock_offset_s(self) -> float:  # type: ignore[override]
        # Use the region that answered last: an offset from before this machine's clock was set is wrong.
        return max(place.region.clock_offset for place in self._used)[1]

    def pools(self) -> Mapping[Pool, InstanceType]:
        _ = self._others  # checks that the regions are enabled, because AWS's own refusal is hard to understand
        return super().pools()

    def pools_in(self, region: str) -> Mapping[Pool, InstanceType]:
        return self._place(region).catalogue.pools()

    def find(self) -> tuple[Instance, ...]:
        # Query each other region until it has answered once, and afterwards only if it had instances.
        others = self._others if self._unanswered is None else self._unanswered
        answers, refusals = self._ask([*self._used, *others], lambda place: place.find())
        # One answering region is enough for a pass. Without any answer nothing is known, and acting would launch
        # everything again.
        if not any(place in answers for place in self._used):
            raise_first(refusals)
        self._unanswered = tuple(place for place in others if place in refusals)
        # A region that was taken out of the file may still have instances, which must be drained and billed.
        self._used += [place for place in others if answers.get(place)]
        self.away = {place.region.name: str(refused) for place, refused in refusals.items()}
        return tuple(instance for some in answers.values() for instance in some)

    def launch(
        self, pools: Sequence[Pool], units: int, token: str, user_data: str, until_s: float | None = None
    ) -> LaunchResult:
        places = [self._place(name) for name in dict.fromkeys(pool.region for pool in pools)]
        # Query all regions first, so that a region without the image is refused before anything is launched in it.
        seen, refusals = self._ask(places, lambda it: (it.of_launch(token), it.catalogue.image))
        if before := [instance for instances, _ in seen.values() for instance in instances]:
            # An earlier call with this token has launched them, and was killed before it saw that. Launch nothing more:
            # the next pass launches what is still missing.
            return LaunchResult(tuple(instance for instance in before if instance.is_live))
        refused = {place.region.name: why for place, why in refusals.items()}
        problems = [
            ProviderProblem(pool, why.kind, str(why)) for pool in pools if (why := refused.get(pool.region)) is not None
        ]
        known = self.pools()
        instances: list[Instance] = []
        for place, (_, image) in seen.items():
            missing = missing_units(units, instances, self.settings.capacity.unit)
            if missing <= 0:
                break
            in_region = (pool for pool in pools if pool.region == place.region.name)
            here = {pool: kind for pool in in_region if (kind := known.get(pool.as_spot))}
            what = image, here, missing, token, user_data, self.marks(until_s)
            launched = RegionalLaunch(place.region, self.settings, *what).run()
            # Record them immediately: EC2 may not show them for some seconds, and a lease or a termination must find
            # their region.
            place.live |= {instance.id for instance in launched.instances}
            instances += launched.instances
            problems += launched.problems
            if any(problem.kind is ProblemKind.BAD_REQUEST for problem in launched.problems):
                place.catalogue.forget_image()
        return LaunchResult(tuple(instances), tuple(problems))

    def lease(self, ids: Sequence[str], until_s: float) -> None:
        marks = self.marks(until_s)
        self._each(ids, lambda place, here: place.lease(here, marks))

    def console(self, id: str) -> str:
        answers, refusals = self._ask(self._used, lambda place: place.console(id))
        if not answers:  # do not return an empty text: nothing is known about that machine
            raise_first(refusals)
        return next((text for text in answers.values() if text), "")

    def terminate(self, ids: Sequence[str]) -> None:
        self._each(ids, lambda place, here: place.terminate(here))

    def look(self, every_fleet: bool = False) -> TagScan:
        ours = filter_by("tag-key", FLEET_TAG) if every_fleet else fleet_filter(self.settings.name)
        away: list[str] = []
        places: list[AwsPlace] = list(self._configured)
        try:
            # Include regions outside of the file: an earlier fleet file may have left something there that costs.
            places += self._others
        except FleetError as error:
            away.append(f"the account's other regions are unknown: {error}")
        answers, refusals = self._ask(places, lambda place: find_leftovers(place.region, ours))
        away += [str(refused) for refused in refusals.values()]
        return TagScan(tuple(it for found in answers.values() for it in found), tuple(away))

    def remove(self, leftovers: Sequence[Leftover]) -> frozenset[Leftover]:
        others = self.__dict__.get("_others", ())  # do not query them here: `look` has, or could not
        here = {p: [one for one in leftovers if one.place == p.region.name] for p in (*self._configured, *others)}
        denied, _ = self._ask([p for p, some in here.items() if some], lambda p: remove(p.region, here[p]))
        return frozenset().union(*denied.values())

    @cached_property
    def _others(self) -> tuple[AwsPlace, ...]:
        """Return the account's enabled regions that the fleet file does not name, queried once.

        Raises:
            FleetError: A region of the file is not enabled.
        """
        answers, refusals = self._ask(self._configured, lambda place: place.region.call("describe_regions")["Regions"])
        if not answers:
            raise_first(refusals)
        names = {item["RegionName"] for item in next(iter(answers.values()))}
        ours = set(self.settings.regions)
        if lacking := sorted(ours - names):
            raise FleetError(
                f"{', '.join(lacking)}: not enabled in this account; change `places > region` in "
                "the fleet file, or enable it in AWS's console under Account"
            )
        return self._places(sorted(names - ours))

    def _places(self, names: Iterable[str]) -> tuple[AwsPlace, ...]:
        return tuple(AwsPlace(AwsRegion(self._session, name), self.settings) for name in names)

    def _place(self, name: str) -> AwsPlace:
        return next(place for place in self._configured if place.region.name == name)

    def _ask(
        self, places: Sequence[AwsPlace], question: Callable[[AwsPlace], Answer]
    ) -> tuple[dict[AwsPlace, Answer], dict[AwsPlace, CloudRefusal]]:
        """Query regions as `ask_all` does, ignoring refusals of regions that the account may not use.

        Refusals of regions that the fleet uses are returned in any case.
        """
        answers, refusals = ask_all(places, question)
        closed = (ProblemKind.NOT_AUTHORISED,)
        # A policy may close regions to the account. If the fleet never used them, that is no reason to warn in each
        # pass.
        return answers, {p: it for p, it in refusals.items() if it.kind not in closed or p in self._used}

    def _each(self, ids: Sequence[str], act: Callable[[AwsPlace, list[str]], None]) -> None:
        """Make a call in each region for the instances that are there, then raise the first refusal.

        Args:
            ids: The instances; an id that is no instance of the fleet is ignored.
            act: Makes the call in a region for a list of ids.

        Raises:
            CloudRefusal: A region refuses the call. It was made in the others.
        """
        # Search if the region of an id is unknown, because another process has found or launched the instance.
        if not all(any(id in place.live for place in self._used) for id in ids):
            self.find()
        located = {place: [id for id in ids if id in place.live] for place in self._used}
        _, refusals = self._ask([p for p, here in located.items() if here], lambda place: act(place, located[place]))
        raise_first(refusals)
