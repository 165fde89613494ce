"""Launch in one region by an EC2 Fleet of type `instant`, with launch templates named by a hash of their content.

A repeated launch is harmless: the same token makes AWS launch only once, and the same content finds the same template.
The templates contain the account key, so they are deleted as soon as the launch is answered; if the process is killed
before that, a sweep deletes them.
"""

import base64
import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from vcdl.fleet.aws.catalogue import Image
from vcdl.fleet.aws.region import ALREADY_EXISTS, Answer, AwsRegion, kind_of, tag_specifications
from vcdl.fleet.instance import Instance, InstanceState, InstanceType, Pool
from vcdl.fleet.machine.cloud_init import compress
from vcdl.fleet.provider import LAUNCH_TAG, MARKET_TAG, LaunchResult, ProviderProblem
from vcdl.fleet.refusal import CloudRefusal, ProblemKind, one_line, unless
from vcdl.fleet.settings import FleetSettings

_MAX_POOLS = 300
"""AWS's limit for the pools of one EC2 Fleet."""
_SPOT = {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate"}}
_CHEAPEST = {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
_NAMED_TYPE = re.compile(r"instanceType=([\w.-]+)")
_T_TYPE = re.compile(r"t\d")
"""Types that earn and spend CPU credits: t2, t3, t3a, t4g."""
_VERSION = "1"
"""Version of the templates: they are never changed, so each has only this one."""


@dataclass(frozen=True)
class RegionalLaunch:
    """One region's part of a launch: either all its pools are on demand, or none is."""

    region: AwsRegion
    settings: FleetSettings
    image: Image
    types: Mapping[Pool, InstanceType]
    """The pools to launch from, with their machine types."""
    units: int
    """Units of capacity to launch."""
    token: str
    """Identifies the launch, so that AWS performs a repetition only once."""
    user_data: str
    """The cloud-init file of the instances."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """The tags of the instances' lease."""

    def run(self) -> LaunchResult:
        """Make the launch, and wait for AWS's answer; refusals are returned as problems."""
        if not self.pools:
            return LaunchResult()
        try:
            answer = self._answer(self._fleet())
        except CloudRefusal as refused:
            # Blame only the type that AWS names: one that is not sold as spot makes AWS refuse the whole launch, and
            # without it the next launch works.
            named = _NAMED_TYPE.findall(str(refused)) if refused.kind is ProblemKind.BAD_REQUEST else ()
            blamed = [pool for pool in self.pools if pool.type in named] or self.pools
            return LaunchResult((), tuple(ProviderProblem(pool, refused.kind, str(refused)) for pool in blamed))
        distinct = dict.fromkeys(it for error in answer.get("Errors", ()) for it in self._problems(error))
        return LaunchResult(self._instances(answer), tuple(distinct))

    def _answer(self, fleet: Mapping[str, Any]) -> Answer:
        """Launch, delete the templates, and return AWS's answer.

        The templates must not stay: everyone who may describe one can read the account key in it.
        """
        try:
            return self.region.call("create_fleet", **fleet)
        finally:
            for config in fleet["LaunchTemplateConfigs"]:
                name = config["LaunchTemplateSpecification"]["LaunchTemplateName"]
                with suppress(CloudRefusal):  # a sweep will delete it
                    self.region.call("delete_launch_template", LaunchTemplateName=name)

    @cached_property
    def pools(self) -> Sequence[Pool]:
        """The pools that provide the unit of capacity, or a sample of _MAX_POOLS of them.

        The sample depends only on the token, so that a repeated launch uses the same pools.
        """
        unit = self.settings.capacity.unit
        pools = sorted(pool for pool, kind in self.types.items() if kind.units(unit) > 0)
        # Take a sample and not the first pools, because these would all be of a few types, and a wide choice of types
        # reduces preemptions.
        return pools if len(pools) <= _MAX_POOLS else sorted(random.Random(self.token).sample(pools, _MAX_POOLS))

    @property
    def _on_demand(self) -> bool:
        return self.pools[0].on_demand

    def _fleet(self) -> Mapping[str, Any]:
        """Return the arguments of `create_fleet`."""
        configs = []
        for credits in (False, True):  # only T types accept a credit specification, so they need a separate template
            if of_kind := [pool for pool in self.pools if bool(_T_TYPE.match(pool.type)) is credits]:
                overrides = [self._override(pool) for pool in of_kind]
                configs.append({"LaunchTemplateSpecification": self._template(credits), "Overrides": overrides})
        tags = {LAUNCH_TAG: self.token, **self.marks, **({MARKET_TAG: "yes"} if self._on_demand else {})}
        return {
            "Type": "instant",
            # AWS launches only once for a token. If the token is repeated with other arguments, AWS refuses the call,
            # which launches nothing twice, either.
            "ClientToken": f"{self.token}-{self.region.name}",
            **(_CHEAPEST if self._on_demand else _SPOT),
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": self.units,
                "DefaultTargetCapacityType": "on-demand" if self._on_demand else "spot",
            },
            "LaunchTemplateConfigs": configs,
            "TagSpecifications": [
                *tag_specifications(self.settings, ("fleet", "volume")),
                *tag_specifications(self.settings, ("instance",), tags),
            ],
        }

    def _override(self, pool: Pool) -> Mapping[str, Any]:
        place = {"SubnetId": pool.subnet} if pool.subnet else {"AvailabilityZone": pool.zone}
        weight = self.types[pool].units(self.settings.capacity.unit)
        return {"InstanceType": pool.type, "WeightedCapacity": weight, **place}

    def _template(self, credits: bool) -> Mapping[str, Any]:
        """Create a launch template unless it exists, and return its `LaunchTemplateSpecification`.

        Args:
            credits: Whether the template is for T types, which accept a credit specification.

        Raises:
            CloudRefusal: AWS refuses the template.
        """
        data = self._template_data(credits)
        # Name the template by its content: it is never changed, so a repeated launch finds the same one, and user data
        # with another key gives another template.
        content = json.dumps(data, sort_keys=True).encode()
        name = f"vcdl-{self.settings.name}-{hashlib.sha256(content).hexdigest()[:16]}"
        tags = tag_specifications(self.settings, ("launch-template",))
        with unless(ALREADY_EXISTS):
            self.region.call(
                "create_launch_template", LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=tags
            )
        return {"LaunchTemplateName": name, "Version": _VERSION}

    def _template_data(self, credits: bool) -> Mapping[str, Any]:
        """Return the `LaunchTemplateData` of a template.

        MaxPrice is not set, because AWS would interrupt instances whose price rises above it.

        Args:
            credits: Whether the template is for T types, which accept a credit specification.
        """
        settings, image = self.settings, self.image
        groups = [it for place in settings.places if place.region == self.region.name for it in place.security_groups]
        # A template that defines a network interface must name the security groups there; the launch names the subnet.
        interface = {"DeviceIndex": 0, "AssociatePublicIpAddress": settings.public_address, "DeleteOnTermination": True}
        size_gb = max(settings.disk_gb, image.root_gb)
        disk = {"VolumeSize": size_gb, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
        # Tag spot requests only in a spot launch: AWS refuses tags for resources that a launch does not create.
        tagged = ("network-interface", *(() if self._on_demand else ("spot-instances-request",)))
        return {
            "ImageId": image.id,
            "UserData": base64.b64encode(compress(self.user_data)).decode(),
            "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
            "NetworkInterfaces": [{**interface, **({"Groups": groups} if groups else {})}],
            # The agent reads notices and the lease from the metadata service. A hop limit of 1 keeps containers and
            # proxies out.
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": tag_specifications(settings, tagged),
            **({"CreditSpecification": {"CpuCredits": "standard"}} if credits else {}),
        }

    def _pool_of(self, item: Answer) -> Pool | None:
        override = item.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        place = override.get("SubnetId") or override.get("AvailabilityZone")
        its_type = (pool for pool in self.pools if pool.type == override.get("InstanceType"))
        return next((pool for pool in its_type if place in (pool.subnet, pool.zone)), None)

    def _problems(self, error: Answer) -> Iterator[ProviderProblem]:
        code = error.get("ErrorCode", "Unknown")
        kind = kind_of(code)
        pool = self._pool_of(error) if kind.may_spare_other_pools else None
        for blamed in self.pools if pool is None else [pool]:
            yield ProviderProblem(blamed, kind, f"{code}: {one_line(error.get('ErrorMessage', ''))}")

    def _instances(self, answer: Answer) -> tuple[Instance, ...]:
        """Return the launched instances from AWS's answer itself: EC2 may not describe them for some seconds."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        launched_s = (parsedate_to_datetime(date) if date else datetime.now(UTC)).timestamp()
        made = []
        for item in answer.get("Instances", ()):
            # Without overrides in the answer, assume any pool of the type: the next pass sees the instance's zone.
            pool = self._pool_of(item) or next(pool for pool in self.pools if pool.type == item["InstanceType"])
            size = self.types[pool].working_vcpus, self.types[pool].gpus
            made += [Instance(id, pool, *size, InstanceState.PENDING, launched_s) for id in item["InstanceIds"]]
        return tuple(made)
