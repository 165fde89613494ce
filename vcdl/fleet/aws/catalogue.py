"""What a region offers a fleet: its subnets, the types that may be launched in them, and what AWS says of those."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.aws.image import Image, find_image
from vcdl.fleet.aws.region import Answer, AwsRegion, batches, named
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.settings import FleetSettings

_MIB_PER_GB = 1024


class Catalogue:
    """Asks once and remembers."""

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self._region = region
        self._settings = settings
        self._known: dict[str, InstanceType] = {}

    @cached_property
    def image(self) -> Image:
        """The image of the region's instances. Raises FleetError."""
        return find_image(self._region, self._settings.image_in(self._region.name))

    def forget_image(self) -> None:
        """Its owner may have withdrawn it since it was found: look for the newest once more."""
        self.__dict__.pop("image", None)

    @cached_property
    def pools(self) -> Mapping[Pool, InstanceType]:
        """The allowed types in each subnet whose zone offers them. Raises FleetError."""
        subnets = self._subnet_of_zone()
        filters = [named("location", *subnets)]
        if listed := self._settings.instances.types:
            filters.append(named("instance-type", *listed))
        places = {
            (offer["InstanceType"], offer["Location"])
            for offer in self._region.all_of(
                "describe_instance_type_offerings",
                "InstanceTypeOfferings",
                LocationType="availability-zone",
                Filters=filters,
            )
        }
        allowed = {kind.name: kind for kind in self._allowed({name for name, _ in places})}
        return {
            Pool("aws", name, self._region.name, zone, subnets[zone]): allowed[name]
            for name, zone in sorted(places)
            if name in allowed
        }

    def types(self, names: Iterable[str]) -> Mapping[str, InstanceType]:
        """What AWS says of these types, whether or not the settings allow them. Raises FleetError."""
        for some in batches(sorted(set(names) - self._known.keys())):
            self._known.update((item["InstanceType"], _type_of(item)) for item in self._described(InstanceTypes=some))
        return self._known

    def _allowed(self, offered: Iterable[str]) -> list[InstanceType]:
        """Spot types that can boot the image: those that are listed and offered, or all that meet the requirements."""
        filters = [
            named("supported-usage-class", "spot"),
            named("processor-info.supported-architecture", self.image.architecture),
        ]
        requirements = self._settings.instances.requirements
        if requirements is None:
            # By name, which AWS refuses for one that it does not have; what it offers, it has.
            lists = batches(sorted(offered))
            return [_type_of(item) for some in lists for item in self._described(InstanceTypes=some, Filters=filters)]
        # Nitro rather than "current": to AWS m5 and c5 are of a previous generation, and their spot pools are large.
        filters += [named("bare-metal", "false"), named("hypervisor", "nitro")]
        kinds = [_type_of(item) for item in self._described(Filters=filters) if _runs_cuda(item)]
        return [kind for kind in kinds if requirements.met_by(kind.vcpus, kind.memory_gb, kind.gpus)]

    def _described(self, **which: Any) -> Iterator[Answer]:
        return self._region.all_of("describe_instance_types", "InstanceTypes", **which)

    def _subnet_of_zone(self) -> Mapping[str, str]:
        """One subnet of each zone, the first that is listed: EC2 refuses a fleet with the same pool twice. Raises FleetError."""
        listed = [s for place in self._settings.places if place.region == self._region.name for s in place.subnets]
        filters = [named("subnet-id", *listed)] if listed else [named("default-for-az", "true")]
        found = {item["SubnetId"]: item for item in self._region.all_of("describe_subnets", "Subnets", Filters=filters)}
        if lacking := [subnet for subnet in listed if subnet not in found]:
            raise FleetError(
                f"{self._region.name} has no subnet {', '.join(lacking)}: change `places > subnets` in the fleet file"
            )
        if not found:
            raise FleetError(
                f"{self._region.name} has no default subnets: list some under `places > subnets` in the fleet file, "
                "or make the default VPC with `aws ec2 create-default-vpc`"
            )
        ordered = listed or sorted(found)
        return {found[subnet]["AvailabilityZone"]: subnet for subnet in reversed(ordered)}


def _type_of(item: Answer) -> InstanceType:
    gpus = sum(gpu.get("Count", 0) for gpu in item.get("GpuInfo", {}).get("Gpus", ()))
    return InstanceType(
        item["InstanceType"], item["VCpuInfo"]["DefaultVCpus"], item["MemoryInfo"]["SizeInMiB"] / _MIB_PER_GB, gpus
    )


def _runs_cuda(item: Answer) -> bool:
    """Whether all GPUs of a type, if it has any, are of the maker whose GPUs the client's runtime uses."""
    return all(gpu.get("Manufacturer") == "NVIDIA" for gpu in item.get("GpuInfo", {}).get("Gpus", ()))
