"""Query a region's machine image, its subnets, and the types that may be launched in them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.aws.region import Answer, AwsRegion, batches, filter_by
from vcdl.fleet.billing import working_share
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.settings import FleetSettings

UBUNTU = "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-"
"""Canonical's account and the prefix of its image names for Ubuntu 24.04."""
_MIB_PER_GB = 1024


@dataclass(frozen=True)
class Image:
    """The facts of an image that a launch needs."""

    id: str
    architecture: str
    """`x86_64`; types of another architecture cannot boot the image."""
    root_device: str
    root_gb: int


class Catalogue:
    """A region's image and pools."""

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self._region = region
        self._settings = settings
        self._known: dict[str, InstanceType] = {}

    @cached_property
    def image(self) -> Image:
        """The image of the region's instances.

        Raises:
            FleetError: There is no such image.
        """
        return _find_image(self._region, self._settings.image_in(self._region.name))

    def forget_image(self) -> None:
        """Forget the image, so that the next launch finds the newest one: the owner may have withdrawn this one."""
        self.__dict__.pop("image", None)

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Return the allowed types in each subnet whose zone offers them.

        Raises:
            FleetError: The region has no usable subnet.
        """
        subnets = self._subnet_of_zone()
        # Let AWS filter: all types in all zones of a region are thousands of rows in many pages.
        filters = [filter_by("location", *subnets)]
        if listed := self._settings.instances.types:
            filters.append(filter_by("instance-type", *listed))
        wanted = {"LocationType": "availability-zone", "Filters": filters}
        offers = self._region.all_of("describe_instance_type_offerings", "InstanceTypeOfferings", **wanted)
        places = {(offer["InstanceType"], offer["Location"]) for offer in offers}
        allowed = {kind.name: kind for kind in self._allowed_types({name for name, _ in places})}
        return {
            Pool("aws", name, self._region.name, zone, subnets[zone]): allowed[name]
            for name, zone in sorted(places)
            if name in allowed
        }

    def types(self, names: Iterable[str]) -> Mapping[str, InstanceType]:
        """Describe these types, whether or not the settings allow them.

        Raises:
            FleetError: AWS does not know a type.
        """
        for some in batches(sorted(set(names) - self._known.keys())):
            self._known |= {
                item["InstanceType"]: self._type_of(item) for item in self._describe_types(InstanceTypes=some)
            }
        return self._known

    def _allowed_types(self, offered: Iterable[str]) -> list[InstanceType]:
        """Return the spot types that can boot the image: listed and offered ones, or all that meet the requirements."""
        filters = [
            filter_by("supported-usage-class", "spot"),
            # On other hypervisors (T2, M4, C4) a machine sees a changed tag, its lease, only after a stop.
            filter_by("hypervisor", "nitro"),
            filter_by("processor-info.supported-architecture", self.image.architecture),
        ]
        requirements = self._settings.instances.requirements
        if requirements is None:
            # Ask only for offered names: AWS refuses the call for an unknown one.
            described = (self._describe_types(InstanceTypes=some, Filters=filters) for some in batches(sorted(offered)))
            return [self._type_of(item) for items in described for item in items]
        # Do not restrict this to current types: AWS counts m5 and c5, whose spot pools are large, as a previous
        # generation.
        filters.append(filter_by("bare-metal", "false"))
        items = [item for item in self._describe_types(Filters=filters) if _makers(item) <= {"NVIDIA"}]  # CUDA's
        kinds = [self._type_of(item) for item in items]
        return [kind for kind in kinds if requirements.met_by(kind.vcpus, kind.memory_gb, kind.gpus)]

    def _type_of(self, item: Answer) -> InstanceType:
        name, memory_gb = item["InstanceType"], item["MemoryInfo"]["SizeInMiB"] / _MIB_PER_GB
        gpus = sum(gpu.get("Count", 0) for gpu in item.get("GpuInfo", {}).get("Gpus", ()))
        return InstanceType(name, item["VCpuInfo"]["DefaultVCpus"], memory_gb, gpus, working_share(name))

    def _describe_types(self, **which: Any) -> Iterator[Answer]:
        return self._region.all_of("describe_instance_types", "InstanceTypes", **which)

    def _subnet_of_zone(self) -> Mapping[str, str]:
        """Return the first subnet of each zone, because EC2 refuses a fleet that contains a pool twice.

        Raises:
            FleetError: A listed subnet does not exist, or the region has no default subnets.
        """
        listed = [s for place in self._settings.places if place.region == self._region.name for s in place.subnets]
        filters = [filter_by("subnet-id", *listed)] if listed else [filter_by("default-for-az", "true")]
        found = {item["SubnetId"]: item for item in self._region.all_of("describe_subnets", "Subnets", Filters=filters)}
        if lacking := [subnet for subnet in listed if subnet not in found]:
            raise FleetError(
                f"{self._region.name} has no subnet {', '.join(lacking)}: change `places > subnets` in the fleet file"
            )
        if not found:
            raise FleetError(
                f"{self._region.name} has no default subnets: list some under `places > subnets` in the fleet file, "
                "or create the default VPC with `aws ec2 create-default-vpc`"
            )
        ordered = listed or sorted(found)
        # Go in reverse order, so that the first subnet of a zone is the one that stays in the dict.
        return {found[subnet]["AvailabilityZone"]: subnet for subnet in reversed(ordered)}


def _makers(item: Answer) -> set[str]:
    """Return the makers of a type's GPUs, in lower case."""
    return {gpu.get("Manufacturer", "") for gpu in item.get("GpuInfo", {}).get("Gpus", ())}


def _find_image(region: AwsRegion, wanted: str | None) -> Image:
    """Return the image ami-…, or the newest OWNER/NAME; without a name, Ubuntu's.

    Raises:
        CloudRefusal, FleetError: There is none.
    """
    wanted = wanted or UBUNTU
    if wanted.startswith("ami-"):
        # Use a filter: a missing id, or the id of another region, then gives an empty answer.
        found = list(region.all_of("describe_images", "Images", Filters=[filter_by("image-id", wanted)]))
    else:
        owner, _, name = wanted.partition("/")
        if not name:
            raise FleetError(
                f"image: {wanted} is neither an AMI's id (ami-…) nor OWNER/NAME; change it in the fleet file"
            )
        filters = [filter_by("name", f"{name}*"), filter_by("state", "available")]
        found = list(region.all_of("describe_images", "Images", Owners=[owner], Filters=filters))
    if not found:
        raise FleetError(
            f"there is no image {wanted} in {region.name}: an id belongs to one region, so give each place "
            "its own `image`, or name it as OWNER/NAME"
        )
    if any(image.get("Architecture") == "arm64" for image in found):
        raise FleetError(
            f"image: {wanted} is for arm64 (Graviton), for which there is neither an app version nor TensorFlow's "
            "CPU wheel: use an image for x86_64"
        )
    # At equal dates sort by id, so that two keepers choose the same image and so the same launch template.
    newest = max(found, key=lambda image: (image.get("CreationDate", ""), image["ImageId"]))
    root = newest.get("RootDeviceName", "/dev/sda1")
    # A disk smaller than the image's own cannot be launched. Images may list other disks, which do not count.
    sizes = [
        d["Ebs"].get("VolumeSize", 0)
        for d in newest.get("BlockDeviceMappings", ())
        if d.get("DeviceName") == root and "Ebs" in d
    ]
    return Image(newest["ImageId"], newest.get("Architecture", "x86_64"), root, max(sizes, default=0))
