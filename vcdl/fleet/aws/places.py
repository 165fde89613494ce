"""The regions of a fleet: those in its file, and others where something of it still runs."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from vcdl.errors import FleetError
from vcdl.fleet.aws.catalogue import Catalogue
from vcdl.fleet.aws.instances import RegionInstances
from vcdl.fleet.aws.region import AwsRegion
from vcdl.fleet.instance import Instance
from vcdl.fleet.provider import ProblemKind
from vcdl.fleet.refusal import CloudRefusal
from vcdl.fleet.settings import FleetSettings

_log = logging.getLogger("vcdl.fleet.aws")
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
        names = {item["RegionName"] for item in self.configured[0].region.call("describe_regions")["Regions"]}
        ours = {place.region.name for place in self.configured}
        if lacking := sorted(ours - names):
            raise FleetError(
                f"{', '.join(lacking)}: this account has not enabled such a region; change `places > region` in "
                "the fleet file, or enable it in AWS's console under Account"
            )
        return tuple(Place(AwsRegion(self._session, name), self._settings) for name in sorted(names - ours))

    def check(self) -> None:
        """Raise FleetError for a region of the file that is not enabled: AWS's own refusal is hard to read."""
        _ = self.others

    def find(self) -> list[Instance]:
        """The fleet's instances. Raises FleetError when a region that may have some cannot be asked."""
        self.check()
        found = [instance for some in self.ask(self.used, lambda place: place.instances.find()) for instance in some]
        # Each other region is asked until it has answered once, and later only if it had something.
        asked = self.others if self._unanswered is None else self._unanswered
        answers = list(zip(asked, self.ask(asked, _find_if_it_answers), strict=True))
        self._unanswered = tuple(place for place, answer in answers if answer is None)
        self.used += [place for place, answer in answers if answer]
        return [*found, *(instance for _, answer in answers for instance in answer or ())]

    def ask(self, places: Sequence[Place], question: Callable[[Place], _T]) -> list[_T]:
        """The answers in order. Raises the first failure."""
        for place in places:
            place.region.connect()  # a session makes clients in one thread only
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="aws") as threads:
            return list(threads.map(question, places))

    def close(self) -> None:
        """Close the connections."""
        for place in (*self.configured, *self.__dict__.get("others", ())):
            place.region.close()


def _find_if_it_answers(place: Place) -> Sequence[Instance] | None:
    try:
        return place.instances.find()
    except CloudRefusal as refused:
        if refused.kind is ProblemKind.NOT_AUTHORISED:
            return ()  # an organisation may close regions; nothing can have been launched there
        _log.warning("%s; the region is asked again, in case something of the fleet is left there", refused)
        return None
