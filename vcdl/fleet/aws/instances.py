"""Find a fleet's instances in one region, and find out how ended ones ended."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from vcdl.fleet.aws.catalogue import Catalogue
from vcdl.fleet.aws.region import NOT_FOUND, Answer, AwsRegion, batches, filter_by, fleet_filter, tags_of
from vcdl.fleet.instance import Ending, Instance, InstanceState, InstanceType, Pool
from vcdl.fleet.provider import KEEPER_TAG, LAUNCH_TAG, LEASE_TAG, MARKET_TAG, ask_all, lease_of, raise_first
from vcdl.fleet.refusal import CloudRefusal, ProblemKind
from vcdl.fleet.settings import FleetSettings

_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.STOPPING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "terminated": InstanceState.GONE,
}
_ENDINGS = {
    "Server.SpotInstanceTermination": Ending.PREEMPTED,
    "Server.SpotInstanceShutdown": Ending.PREEMPTED,
    "Client.UserInitiatedShutdown": Ending.OURS,
    "Client.InstanceInitiatedShutdown": Ending.GAVE_UP,
}
_MOMENT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
"""The time in a `StateTransitionReason` such as `User initiated (2026-11-21 11:33:16 GMT)`."""


class AwsPlace:
    """Finds, leases and terminates the instances of a fleet in one region.

    Instances are found by tag. AWS removes the tags of a terminated instance early, so instances that were seen live
    are also queried by id: only that shows how they ended.
    """

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self.region = region
        self.catalogue = Catalogue(region, settings)
        self.live: frozenset[str] = frozenset()
        """Ids of instances that were live here in the last answer, or were launched since then."""
        self._fleet = settings.name
        self._ended_s: dict[str, float | None] = {}

    def find(self) -> tuple[Instance, ...]:
        """Query all instances with the fleet's tag, and those that were live at the last call; update `live`.

        Raises:
            CloudRefusal: AWS refuses the call, or cannot be reached.
        """
        items = self._describe_instances(fleet_filter(self._fleet))
        # AWS removes the tags of a terminated instance within minutes, but describes it by id for about an hour. Only
        # that shows how it ended.
        lost = self.live.difference(item["InstanceId"] for item in items)
        for ids in batches(sorted(lost)):
            items += self._describe_instances(filter_by("instance-id", *ids))
        found = self._read(items)
        self.live = frozenset(instance.id for instance in found if instance.state is not InstanceState.GONE)
        return found

    def of_launch(self, token: str) -> tuple[Instance, ...]:
        """Query the instances of a launch by its token, including ended ones that still have their tags.

        Raises:
            CloudRefusal: AWS refuses the call, or cannot be reached.
        """
        return self._read(self._describe_instances(fleet_filter(self._fleet), filter_by(f"tag:{LAUNCH_TAG}", token)))

    def lease(self, ids: Iterable[str], marks: Mapping[str, str]) -> None:
        """Write tags with a lease on instances; a missing instance is no error.

        Args:
            ids: The instances.
            marks: The tags, from `Provider.marks`.

        Raises:
            CloudRefusal: AWS refuses the call for an existing instance.
        """
        tags = [{"Key": name, "Value": value} for name, value in marks.items()]
        self._on_all_or_each(ids, lambda some: self.region.call("create_tags", Resources=some, Tags=tags))

    def console(self, id: str) -> str:
        """Return the end of an instance's console output, at most 64 KB.

        Raises:
            CloudRefusal: AWS refuses the call, or cannot be reached.
        """
        try:  # the latest output first; an instance that has ended may have only a saved one
            answer = self.region.call("get_console_output", InstanceId=id, Latest=True)
        except CloudRefusal as refused:
            if refused.kind is not ProblemKind.BAD_REQUEST:
                # The saved output of a live machine ends at its launch, before the agent starts, so it would not help.
                raise
            answer = self.region.call("get_console_output", InstanceId=id)
        return str(answer.get("Output", ""))  # boto3 has already decoded it

    def terminate(self, ids: Iterable[str]) -> None:
        """Terminate instances; a missing one is no error.

        Raises:
            CloudRefusal: AWS refuses the call for an existing instance.
        """
        self._on_all_or_each(ids, lambda some: self.region.call("terminate_instances", InstanceIds=some))

    def _on_all_or_each(self, ids: Iterable[str], call: Callable[[list[str]], object]) -> None:
        """Make a call for many ids, so that one bad id does not prevent it for the others.

        If AWS refuses a list, because one instance is missing or protected, the call is repeated for each id alone.

        Args:
            ids: The instances.
            call: Makes the call for a list of ids.

        Raises:
            CloudRefusal: AWS refuses the call for an existing instance.
        """
        refusals: dict[str, CloudRefusal] = {}
        for some in batches(ids):
            try:
                call(some)
            except CloudRefusal:
                refusals |= ask_all(some, lambda id: call([id]))[1]
        raise_first({id: it for id, it in refusals.items() if it.code not in NOT_FOUND})

    def _describe_instances(self, *filters: Mapping[str, Any]) -> list[Answer]:
        return list(self.region.all_of("describe_instances", "Reservations[].Instances[]", Filters=filters))

    def _read(self, items: Iterable[Answer]) -> tuple[Instance, ...]:
        items = list(items)
        types = self.catalogue.types(item["InstanceType"] for item in items)
        self._ask_when_preempted(items)
        return tuple(self._instance(item, types[item["InstanceType"]]) for item in items)

    def _instance(self, item: Answer, kind: InstanceType) -> Instance:
        state = _STATES[item["State"]["Name"]]
        tags = tags_of(item)
        until_s = lease_of(tags.get(LEASE_TAG))
        ended_s = _ended_s(item) or self._ended_s.get(item["InstanceId"])
        zone = item.get("Placement", {}).get("AvailabilityZone", "")
        place = self.region.name, zone, item.get("SubnetId", "")
        return Instance(
            id=item["InstanceId"],
            pool=Pool("aws", kind.name, *place, on_demand=MARKET_TAG in tags),
            vcpus=kind.working_vcpus,
            gpus=kind.gpus,
            state=state,
            launched_s=item["LaunchTime"].timestamp(),
            ended_s=None if state.is_live else ended_s,
            ending=None if state.is_live else _ending(item, until_s, ended_s),
            until_s=until_s,
            keeper=tags.get(KEEPER_TAG, ""),
        )

    def _ask_when_preempted(self, items: Iterable[Answer]) -> None:
        """Query when preempted instances ended, which only their spot requests tell, and keep it in `_ended_s`.

        Each instance is queried only once.
        """
        asked = {
            item["SpotInstanceRequestId"]: item["InstanceId"]
            for item in items
            if item["State"]["Name"] == "terminated"
            and item.get("SpotInstanceRequestId")
            and _ended_s(item) is None
            and item["InstanceId"] not in self._ended_s
        }
        # Record the instances before the answer, so that a request that AWS has forgotten is not queried in each pass.
        self._ended_s.update(dict.fromkeys(asked.values()))
        for ids in batches(asked):
            wanted = [filter_by("spot-instance-request-id", *ids)]
            requests = self.region.all_of("describe_spot_instance_requests", "SpotInstanceRequests", Filters=wanted)
            for request in requests:
                if request["Status"]["Code"].startswith("instance-terminated"):
                    self._ended_s[asked[request["SpotInstanceRequestId"]]] = request["Status"]["UpdateTime"].timestamp()


def _ending(item: Answer, until_s: float | None, ended_s: float | None) -> Ending:
    ending = _ENDINGS.get(item.get("StateReason", {}).get("Code", ""), Ending.UNKNOWN)
    # The agent powers off after a drain as well as for lack of work. Before the end of its lease it was for lack of
    # work, which counts for the crash loop.
    is_asked = until_s is None or (ended_s is not None and until_s <= ended_s)
    return Ending.OURS if ending is Ending.GAVE_UP and is_asked else ending


def _ended_s(item: Answer) -> float | None:
    found = _MOMENT.search(item.get("StateTransitionReason", ""))
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp() if found else None
