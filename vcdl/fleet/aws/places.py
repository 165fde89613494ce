"""The regions of a fleet: those in its file, and others where something of it still runs."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from vcdl.errors import FleetError
from vcdl.fleet.aws.catalogue import Catalogue
from vcdl.fleet.aws.instances import RegionInstances
from vcdl.fleet.aws.region import AwsRegion
from vcdl.fleet.instance import Instance
from vcdl.fleet.refusal import CloudRefusal, ProblemKind
from vcdl.fleet.settings import FleetSettings

_THREADS = 8
"""Regions that are asked at the same time."""
_T = TypeVar("_T")


class Place:
    """A region as the fleet uses it."""

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self.region = region
        self.catalogue = Catalogue(region, settings)
        self.instances = RegionInstances(region, settings.name, self.catalogue)


class Places:
    """All regions of the account; those of the fleet file first, in its order."""

    def __init__(self, session: Any, settings: FleetSettings) -> None:
        """`session`: a boto3.Session. Calls nothing yet."""
        self._session = session
        self._settings = settings
        names = dict.fromkeys(place.region for place in settings.places)
        self.configured = tuple(Place(AwsRegion(session, name), settings) for name in names)
        """The regions of the fleet file."""
        self.used = list(self.configured)
        """The regions with instances, or that may have some."""
        self._unanswered: Sequence[Place] | None = None
        """Other regions that have not yet answered; None: none was asked."""

    @cached_property
    def others(self) -> tuple[Place, ...]:
        """The account's other enabled regions. Raises FleetError for a region of the file that is not enabled."""
        answers, refusals = self.ask(self.configured, lambda place: place.region.call("describe_regions")["Regions"])
        if not answers:
            raise next(iter(refusals.values()))
        names = {item["RegionName"] for item in next(iter(answers.values()))}
        ours = {place.region.name for place in self.configured}
        if lacking := sorted(ours - names):
            raise FleetError(
                f"{', '.join(lacking)}: this account has not enabled such a region; change `places > region` in "
                "the fleet file, or enable it in AWS's console under Account"
            )
        return tuple(Place(AwsRegion(self._session, name), self._settings) for name in sorted(names - ours))

    def find(self) -> tuple[list[Instance], Mapping[str, str]]:
        """The fleet's instances, and the regions that did not answer. Raises CloudRefusal when none answers."""
        # Each other region is asked until it has answered once, and later only if it had something.
        others = self.others if self._unanswered is None else self._unanswered
        answers, refusals = self.ask([*self.used, *others], lambda place: place.instances.find())
        if not any(place in answers for place in self.used):
            raise next(iter(refusals.values()))
        self._unanswered = tuple(place for place in others if place in refusals)
        self.used += [place for place in others if answers.get(place)]
        found = [instance for some in answers.values() for instance in some]
        return found, {place.region.name: str(refused) for place, refused in refusals.items()}

    def ask(
        self, places: Sequence[Place], question: Callable[[Place], _T]
    ) -> tuple[dict[Place, _T], dict[Place, CloudRefusal]]:
        """The answers and the refusals, in the order of the places: one that is away holds up none of the others.

        A region outside the file that an organisation has closed is in neither: nothing was launched there.
        """

        def attempt(place: Place) -> _T | CloudRefusal:
            try:
                return question(place)
            except CloudRefusal as refused:
                return refused

        connected = {place: self._connect(place) for place in places}  # a session makes clients in one thread only
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="aws") as threads:
            outcomes = dict(zip(places, threads.map(lambda p: connected[p] or attempt(p), places), strict=True))
        answers = {place: it for place, it in outcomes.items() if not isinstance(it, CloudRefusal)}
        refusals = {place: it for place, it in outcomes.items() if isinstance(it, CloudRefusal)}
        closed = (ProblemKind.NOT_AUTHORISED,)
        return answers, {p: it for p, it in refusals.items() if it.kind not in closed or p in self.used}

    @property
    def known(self) -> tuple[Place, ...]:
        """All regions that were asked."""
        return (*self.configured, *self.__dict__.get("others", ()))

    def close(self) -> None:
        """Close the connections."""
        for place in self.known:
            place.region.close()

    @staticmethod
    def _connect(place: Place) -> CloudRefusal | None:
        try:
            place.region.connect()
        except CloudRefusal as refused:
            return refused
        return None
