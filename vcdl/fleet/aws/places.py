"""The regions of a fleet: those of its file, and those where something of it still runs although the file no longer names them."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from vcdl.errors import FleetError
from vcdl.fleet.aws.catalogue import Catalogue
from vcdl.fleet.aws.instances import RegionInstances
from vcdl.fleet.aws.refusal import AwsRefusal
from vcdl.fleet.aws.region import AwsRegion
from vcdl.fleet.instance import Instance
from vcdl.fleet.provider import ProblemKind
from vcdl.fleet.settings import FleetSettings

_log = logging.getLogger("vcdl.fleet.aws")
_AT_A_TIME = 8
"""Regions that are asked at once."""
_T = TypeVar("_T")


class Place:
    """A region, as the fleet uses it."""

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self.region = region
        self.catalogue = Catalogue(region, settings)
        self.instances = RegionInstances(region, settings.name, self.catalogue)


class Places:
    """All regions of the account, with those of the fleet file first and in its order."""

    def __init__(self, session: Any, settings: FleetSettings) -> None:
        """`session`: a boto3.Session. Calls nothing yet."""
        self._session = session
        self._settings = settings
        names = dict.fromkeys(place.region for place in settings.places)
        self.of_file = tuple(Place(AwsRegion(session, name), settings) for name in names)
        self.used = list(self.of_file)
        """Where there are, or may be, instances."""
        self._unasked: Sequence[Place] | None = None

    @cached_property
    def others(self) -> tuple[Place, ...]:
        """What else the account has switched on."""
        names = {item["RegionName"] for item in self.of_file[0].region.call("describe_regions")["Regions"]}
        ours = {place.region.name for place in self.of_file}
        if lacking := sorted(ours - names):
            raise FleetError(
                f"{', '.join(lacking)}: no region that this account has switched on; change `places > region` in the fleet "
                "file, or switch it on in AWS's console under Account"
            )
        return tuple(Place(AwsRegion(self._session, name), self._settings) for name in sorted(names - ours))

    def check(self) -> None:
        """Raises FleetError for a region of the file that the account has not switched on: its own refusals are hard to read."""
        _ = self.others

    def find(self) -> list[Instance]:
        """The fleet's instances. Raises FleetError when a region where there may be some cannot be asked."""
        self.check()
        found = [instance for some in self.ask(self.used, lambda place: place.instances.find()) for instance in some]
        # Each other region is asked until it has answered once, and from then on only if it had something.
        asked = self.others if self._unasked is None else self._unasked
        answers = list(zip(asked, self.ask(asked, _find_if_it_answers), strict=True))
        self._unasked = tuple(place for place, answer in answers if answer is None)
        self.used += [place for place, answer in answers if answer]
        return [*found, *(instance for _, answer in answers for instance in answer or ())]

    def ask(self, places: Sequence[Place], question: Callable[[Place], _T]) -> list[_T]:
        """The answers, in order; the first failure is raised."""
        for place in places:
            place.region.connect()  # here, as a session makes clients in one thread only
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="aws") as threads:
            return list(threads.map(question, places))

    def close(self) -> None:
        """Let go of connections."""
        for place in (*self.of_file, *self.__dict__.get("others", ())):
            place.region.close()


def _find_if_it_answers(place: Place) -> Sequence[Instance] | None:
    try:
        return place.instances.find()
    except AwsRefusal as refused:
        if refused.kind is ProblemKind.NOT_AUTHORISED:
            return ()  # an organisation may close regions; nothing can have been launched in one
        _log.warning("%s; it is asked again, in case something of the fleet is left there", refused)
        return None
