"""The instances of a fleet in one region, as EC2 shows them, and how the gone ones ended."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from vcdl.fleet.aws.catalogue import Catalogue
from vcdl.fleet.aws.refusal import NOT_FOUND, AwsRefusal
from vcdl.fleet.aws.region import Answer, AwsRegion, batches, named
from vcdl.fleet.aws.tags import LAUNCH_TAG, fleet_filter, tags_of
from vcdl.fleet.instance import Ending, Instance, InstanceType, Pool, State
from vcdl.fleet.provider import DRAIN_TAG

_STATES = {
    "pending": State.PENDING,
    "running": State.RUNNING,
    "shutting-down": State.STOPPING,
    "stopping": State.STOPPING,
    "stopped": State.STOPPED,
    "terminated": State.GONE,
}
_ENDINGS = {
    "Server.SpotInstanceTermination": Ending.PREEMPTED,
    "Server.SpotInstanceShutdown": Ending.PREEMPTED,
    "Client.UserInitiatedShutdown": Ending.OURS,
    "Client.InstanceInitiatedShutdown": Ending.OURS,
}
_MOMENT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
"""In `StateTransitionReason`: `User initiated (2026-11-21 11:33:16 GMT)`."""


class RegionInstances:
    """Finds by tag; what it saw alive it also finds by id, as AWS takes the tags off a terminated instance before the instance itself."""

    def __init__(self, region: AwsRegion, fleet: str, catalogue: Catalogue) -> None:
        self._region = region
        self._fleet = fleet
        self._catalogue = catalogue
        self._alive: frozenset[str] = frozenset()
        self._ended_s: dict[str, float | None] = {}

    def find(self) -> tuple[Instance, ...]:
        """All of them. Raises AwsRefusal."""
        items = self._described(fleet_filter(self._fleet))
        lost = self._alive.difference(item["InstanceId"] for item in items)
        for ids in batches(sorted(lost)):
            items += self._described(named("instance-id", *ids))
        found = self._read(items)
        self._alive = frozenset(instance.id for instance in found if instance.state is not State.GONE)
        return found

    def of_launch(self, token: str) -> tuple[Instance, ...]:
        """What a launch made, gone or not. Raises AwsRefusal."""
        return self._read(self._described(fleet_filter(self._fleet), named(f"tag:{LAUNCH_TAG}", token)))

    def made(self, instances: Iterable[Instance]) -> None:
        """Remember what a launch just made."""
        self._alive |= {instance.id for instance in instances}

    def mark(self, ids: Iterable[str], since_s: float) -> None:
        """Write the drain mark on those that are there and have none. Raises AwsRefusal."""
        mark = [{"Key": DRAIN_TAG, "Value": str(int(since_s))}]
        for some in batches(ids):
            items = self._described(named("instance-id", *some))
            unmarked = [item["InstanceId"] for item in items if DRAIN_TAG not in tags_of(item)]
            _all_or_each(unmarked, lambda ids: self._region.call("create_tags", Resources=ids, Tags=mark))

    def terminate(self, ids: Iterable[str]) -> None:
        """End those that are there. Raises AwsRefusal."""
        for some in batches(ids):
            _all_or_each(some, lambda ids: self._region.call("terminate_instances", InstanceIds=ids))

    def knows(self, id: str) -> bool:
        """Whether it was alive here when last looked."""
        return id in self._alive

    def _described(self, *filters: Mapping[str, Any]) -> list[Answer]:
        return list(self._region.all_of("describe_instances", "Reservations[].Instances[]", Filters=filters))

    def _read(self, items: Iterable[Answer]) -> tuple[Instance, ...]:
        items = list(items)
        types = self._catalogue.types(item["InstanceType"] for item in items)
        self._ask_when_preempted(items)
        return tuple(self._instance(item, types[item["InstanceType"]]) for item in items)

    def _instance(self, item: Answer, kind: InstanceType) -> Instance:
        state = _STATES[item["State"]["Name"]]
        is_live = state in (State.PENDING, State.RUNNING)
        zone = item.get("Placement", {}).get("AvailabilityZone", "")
        return Instance(
            id=item["InstanceId"],
            pool=Pool("aws", kind.name, self._region.name, zone, item.get("SubnetId", "")),
            vcpus=kind.vcpus,
            gpus=kind.gpus,
            state=state,
            launched_s=item["LaunchTime"].timestamp(),
            ended_s=None if is_live else _ended_s(item) or self._ended_s.get(item["InstanceId"]),
            ending=None if is_live else _ending(item),
            draining_s=_draining_s(item),
        )

    def _ask_when_preempted(self, items: Iterable[Answer]) -> None:
        """An instance does not say when AWS ended it; the spot request behind it does. Asked once for each."""
        asked = {
            item["SpotInstanceRequestId"]: item["InstanceId"]
            for item in items
            if item["State"]["Name"] == "terminated"
            and item.get("SpotInstanceRequestId")
            and _ended_s(item) is None
            and item["InstanceId"] not in self._ended_s
        }
        self._ended_s.update(dict.fromkeys(asked.values()))
        for ids in batches(asked):
            wanted = named("spot-instance-request-id", *ids)
            for request in self._region.all_of(
                "describe_spot_instance_requests", "SpotInstanceRequests", Filters=[wanted]
            ):
                if request["Status"]["Code"].startswith("instance-terminated"):
                    self._ended_s[asked[request["SpotInstanceRequestId"]]] = request["Status"]["UpdateTime"].timestamp()


def _ending(item: Answer) -> Ending:
    return _ENDINGS.get(item.get("StateReason", {}).get("Code", ""), Ending.UNKNOWN)


def _ended_s(item: Answer) -> float | None:
    found = _MOMENT.search(item.get("StateTransitionReason", ""))
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp() if found else None


def _draining_s(item: Answer) -> float | None:
    """A mark that somebody else wrote there in another form counts from the beginning of time: the instance is to go."""
    mark = tags_of(item).get(DRAIN_TAG)
    if mark is None:
        return None
    return float(mark) if mark.isascii() and mark.isdigit() else 0.0


def _all_or_each(ids: Sequence[str], call: Callable[[Sequence[str]], object]) -> None:
    """A call on all, or, as AWS refuses all of them for one that is not found, on each. Raises AwsRefusal for any other reason."""
    try:
        if ids:
            call(ids)
    except AwsRefusal as refused:
        if refused.code not in NOT_FOUND:
            raise
        if len(ids) > 1:
            for id in ids:
                _all_or_each([id], call)
