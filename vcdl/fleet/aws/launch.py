"""A launch in one region by an EC2 Fleet of type `instant`: it answers at once, and then owns nothing."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from vcdl.fleet.aws.catalogue import Image
from vcdl.fleet.aws.launch_template import ensure_template, is_burstable, template_data
from vcdl.fleet.aws.refusal import kind_of
from vcdl.fleet.aws.region import Answer, AwsRegion, tag_specifications
from vcdl.fleet.instance import Instance, InstanceState, InstanceType, Pool
from vcdl.fleet.provider import LAUNCH_TAG, LEASE_TAG, MARKET_TAG, LaunchResult, ProviderProblem
from vcdl.fleet.refusal import CloudRefusal, ProblemKind, one_line
from vcdl.fleet.settings import FleetSettings, Unit

_MAX_POOLS = 300
"""AWS's limit for one fleet."""
_SPOT = {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate"}}
_CHEAPEST = {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
_NAMED_TYPE = re.compile(r"instanceType=([\w.-]+)")


@dataclass(frozen=True)
class RegionalLaunch:
    """One region's part of a launch: all its pools are on demand, or none is."""

    pools: Mapping[Pool, InstanceType]
    units: int
    token: str
    user_data: str
    until_s: float | None = None
    """The lease of the instances."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of its instances, besides the fleet's."""
        lease = {} if self.until_s is None else {LEASE_TAG: str(int(self.until_s))}
        market = {MARKET_TAG: "yes"} if any(pool.on_demand for pool in self.pools) else {}
        return {LAUNCH_TAG: self.token, **lease, **market}


def launch_in(region: AwsRegion, settings: FleetSettings, image: Image, request: RegionalLaunch) -> LaunchResult:
    """Launch in a region; AWS's refusals are among the problems. Raises FleetError for user data that is too long."""
    pools = chosen_pools(request, settings.capacity.unit)
    if not pools:
        return LaunchResult()
    try:
        answer = region.call("create_fleet", **_fleet(region, settings, image, request, pools))
    except CloudRefusal as refused:
        problems = (ProviderProblem(pool, refused.kind, str(refused)) for pool in _blamed(refused, pools))
        return LaunchResult((), tuple(problems))
    by_place = {(pool.type, place): pool for pool in pools for place in (pool.subnet, pool.zone) if place}
    distinct = dict.fromkeys(it for error in answer.get("Errors", ()) for it in _problems(error, by_place, pools))
    return LaunchResult(_instances(answer, request, by_place), tuple(distinct))


def chosen_pools(request: RegionalLaunch, unit: Unit) -> Sequence[Pool]:
    """The pools with such units; at most _MAX_POOLS, chosen by the token, so that a repeated call is the same."""
    pools = sorted(pool for pool, kind in request.pools.items() if kind.units(unit) > 0)
    return pools if len(pools) <= _MAX_POOLS else sorted(random.Random(request.token).sample(pools, _MAX_POOLS))


def _fleet(
    region: AwsRegion, settings: FleetSettings, image: Image, request: RegionalLaunch, pools: Sequence[Pool]
) -> Mapping[str, Any]:
    """The arguments of `create_fleet`."""
    configs = []
    for burstable in (False, True):
        of_kind = [pool for pool in pools if is_burstable(pool.type) is burstable]
        if of_kind:
            data = template_data(settings, region.name, image, request.user_data, burstable, pools[0].on_demand)
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
        # AWS launches once for a token; it refuses one that comes back with other arguments, which is as good.
        "ClientToken": f"{request.token}-{region.name}",
        **(_CHEAPEST if pools[0].on_demand else _SPOT),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.units,
            "DefaultTargetCapacityType": "on-demand" if pools[0].on_demand else "spot",
        },
        "LaunchTemplateConfigs": configs,
        "TagSpecifications": [
            *tag_specifications(settings, ("fleet", "volume")),
            *tag_specifications(settings, ("instance",), request.tags),
        ],
    }


def _override(pool: Pool, weight: int) -> Mapping[str, Any]:
    place = {"SubnetId": pool.subnet} if pool.subnet else {"AvailabilityZone": pool.zone}
    return {"InstanceType": pool.type, "WeightedCapacity": weight, **place}


def _blamed(refused: CloudRefusal, pools: Sequence[Pool]) -> Sequence[Pool]:
    """The pools that caused the refusal of a whole launch: all of the region, if it names none."""
    # One type that is not sold as a spot instance has the whole launch refused; without it the next launch works.
    named = _NAMED_TYPE.findall(str(refused)) if refused.kind is ProblemKind.BAD_REQUEST else ()
    return [pool for pool in pools if pool.type in named] or pools


def _pool_of(item: Answer, by_place: Mapping[tuple[str, str], Pool]) -> Pool | None:
    override = item.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    place = override.get("SubnetId") or override.get("AvailabilityZone", "")
    return by_place.get((override.get("InstanceType", ""), place))


def _problems(
    error: Answer, by_place: Mapping[tuple[str, str], Pool], pools: Sequence[Pool]
) -> Iterator[ProviderProblem]:
    code = error.get("ErrorCode", "Unknown")
    kind = kind_of(code)
    pool = _pool_of(error, by_place) if kind.may_spare_other_pools else None
    for blamed in pools if pool is None else [pool]:
        yield ProviderProblem(blamed, kind, f"{code}: {one_line(error.get('ErrorMessage', ''))}")


def _instances(
    answer: Answer, request: RegionalLaunch, by_place: Mapping[tuple[str, str], Pool]
) -> tuple[Instance, ...]:
    """The launched instances, from the answer alone: for some seconds EC2 may not describe them."""
    launched_s = _moment_s(answer)
    made = []
    for item in answer.get("Instances", ()):
        pool = _pool_of(item, by_place)
        if pool is None:  # an answer without overrides; the next pass shows the zone
            pool = next(pool for pool in request.pools if pool.type == item["InstanceType"])
        kind = request.pools[pool]
        made += [
            Instance(
                id=id,
                pool=pool,
                vcpus=kind.working_vcpus,
                gpus=kind.gpus,
                state=InstanceState.PENDING,
                launched_s=launched_s,
            )
            for id in item["InstanceIds"]
        ]
    return tuple(made)


def _moment_s(answer: Answer) -> float:
    """The time of the answer by AWS's clock."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return (parsedate_to_datetime(date) if date else datetime.now(UTC)).timestamp()
