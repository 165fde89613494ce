"""One launch in one region: an EC2 Fleet of type `instant`, which answers at once with instances and refusals and then owns nothing."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from vcdl.fleet.aws.image import Image
from vcdl.fleet.aws.launch_template import ensure_template, is_burstable, template_data
from vcdl.fleet.aws.refusal import AwsRefusal, kind_of, one_line
from vcdl.fleet.aws.region import Answer, AwsRegion
from vcdl.fleet.aws.tags import LAUNCH_TAG, tagged
from vcdl.fleet.instance import Instance, InstanceType, Pool, State
from vcdl.fleet.provider import Launched, Problem, ProblemKind
from vcdl.fleet.settings import FleetSettings, Unit

_OVERRIDES = 300
"""Of one fleet, by AWS's limits."""
_OF_A_POOL = (ProblemKind.NO_CAPACITY, ProblemKind.QUOTA, ProblemKind.BAD_REQUEST)
"""Kinds that say something about the pool; the others would be the same for all of them."""
_NAMED_TYPE = re.compile(r"instanceType=([\w.-]+)")


@dataclass(frozen=True)
class LaunchRequest:
    """What is asked of a region."""

    pools: Mapping[Pool, InstanceType]
    units: int
    token: str
    user_data: str


def launch_in(region: AwsRegion, settings: FleetSettings, image: Image, request: LaunchRequest) -> Launched:
    """Raises FleetError for user data that is too long; what AWS refuses is among the problems."""
    pools = chosen_pools(request, settings.capacity.unit)
    if not pools:
        return Launched()
    try:
        answer = region.call("create_fleet", **_fleet(region, settings, image, request, pools))
    except AwsRefusal as refused:
        return Launched((), tuple(Problem(pool, refused.kind, str(refused)) for pool in _blamed(refused, pools)))
    by_place = {(pool.type, place): pool for pool in pools for place in (pool.subnet, pool.zone) if place}
    problems = dict.fromkeys(_problem(error, by_place) for error in answer.get("Errors", ()))
    return Launched(_instances(answer, request, by_place), tuple(problems))


def chosen_pools(request: LaunchRequest, unit: Unit) -> Sequence[Pool]:
    """Pools that count for something; of too many a choice that depends on the token alone, so that a repeated call is the same."""
    pools = sorted(pool for pool, kind in request.pools.items() if kind.units(unit) > 0)
    return pools if len(pools) <= _OVERRIDES else sorted(random.Random(request.token).sample(pools, _OVERRIDES))


def _fleet(
    region: AwsRegion, settings: FleetSettings, image: Image, request: LaunchRequest, pools: Sequence[Pool]
) -> Mapping[str, Any]:
    """The arguments of `create_fleet`."""
    configs = []
    for burstable in (False, True):
        of_kind = [pool for pool in pools if is_burstable(pool.type) is burstable]
        if of_kind:
            data = template_data(settings, image, request.user_data, burstable)
            configs.append(
                {
                    "LaunchTemplateSpecification": ensure_template(region, settings, data),
                    "Overrides": [
                        _override(pool, request.pools[pool].units(settings.capacity.unit)) for pool in of_kind
                    ],
                }
            )
    return {
        "Type": "instant",
        # AWS launches once for a token; one that comes back with other arguments is refused, which is as good.
        "ClientToken": f"{request.token}-{region.name}",
        "SpotOptions": {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        },
        "TargetCapacitySpecification": {"TotalTargetCapacity": request.units, "DefaultTargetCapacityType": "spot"},
        "LaunchTemplateConfigs": configs,
        "TagSpecifications": [
            *tagged(settings, ("fleet", "volume")),
            *tagged(settings, ("instance",), {LAUNCH_TAG: request.token}),
        ],
    }


def _override(pool: Pool, weight: int) -> Mapping[str, Any]:
    place = {"SubnetId": pool.subnet} if pool.subnet else {"AvailabilityZone": pool.zone}
    return {"InstanceType": pool.type, "WeightedCapacity": weight, **place}


def _blamed(refused: AwsRefusal, pools: Sequence[Pool]) -> Sequence[Pool | None]:
    """Of a launch that is refused as a whole: those that are to rest, or None."""
    if refused.kind is ProblemKind.NO_CAPACITY:
        return pools
    # One type that is not sold as a spot instance after all refuses all of them: without it, the next launch will do.
    named = _NAMED_TYPE.findall(str(refused)) if refused.kind is ProblemKind.BAD_REQUEST else ()
    return [pool for pool in pools if pool.type in named] or [None]


def _pool_of(item: Answer, by_place: Mapping[tuple[str, str], Pool]) -> Pool | None:
    override = item.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    place = override.get("SubnetId") or override.get("AvailabilityZone", "")
    return by_place.get((override.get("InstanceType", ""), place))


def _problem(error: Answer, by_place: Mapping[tuple[str, str], Pool]) -> Problem:
    code = error.get("ErrorCode", "Unknown")
    kind = kind_of(code)
    pool = _pool_of(error, by_place) if kind in _OF_A_POOL else None
    return Problem(pool, kind, one_line(code, error.get("ErrorMessage", "")))


def _instances(
    answer: Answer, request: LaunchRequest, by_place: Mapping[tuple[str, str], Pool]
) -> tuple[Instance, ...]:
    """From the answer alone: EC2 may not describe for some seconds what it has just made."""
    launched_s = _moment_s(answer)
    made = []
    for item in answer.get("Instances", ()):
        pool = _pool_of(item, by_place)
        if pool is None:  # an answer without overrides; the next look shows the zone
            pool = next(pool for pool in request.pools if pool.type == item["InstanceType"])
        kind = request.pools[pool]
        made += [Instance(id, pool, kind.vcpus, kind.gpus, State.PENDING, launched_s) for id in item["InstanceIds"]]
    return tuple(made)


def _moment_s(answer: Answer) -> float:
    """When AWS answered, by its own clock."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return (parsedate_to_datetime(date) if date else datetime.now(UTC)).timestamp()
