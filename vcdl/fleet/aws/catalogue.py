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
    """A machine image (AMI), with what a launch must know of it."""

    id: str
    architecture: str
    """`x86_64`; types of another architecture cannot boot the image."""
    root_device: str
    """Device name of the boot disk."""
    root_gb: int
    """Size of the image's boot disk, below which a launch is refused."""


class Catalogue:
    """Queries a region's machine image and its pools; the image and the types are kept once they are known."""

    def __init__(self, region: AwsRegion, settings: FleetSettings) -> None:
        self._region = region
        self._settings = settings
        self._known: dict[str, InstanceType] = {}

    @cached_property
    def image(self) -> Image:
        """The image that instances in this region boot, queried at the first use.

        Raises:
            FleetError: The fleet file's image does not exist in this region, or is for ARM.
        """
        return _find_image(self._region, self._settings.image_in(self._region.name))

    def forget_image(self) -> None:
        """Forget the image, so that the next launch queries the newest one: its owner may have withdrawn this one."""
        self.__dict__.pop("image", None)

    def pools(self) -> Mapping[Pool, InstanceType]:
        """Query the pools of the region: each type that the fleet file allows, in each zone that offers it.

        Raises:
            FleetError: The region has no usable subnet, or no image.
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
        """Return all known types, keyed by name, after querying those of `names` that are not known yet.

        The types need not be allowed by the fleet file: instances may have been launched by an earlier one.

        Raises:
            FleetError: AWS does not know a type.
        """
        for some in batches(sorted(set(names) - self._known.keys())):
            self._known |= {
                item["InstanceType"]: self._type_of(item) for item in self._describe_types(InstanceTypes=some)
            }
        return self._known

    def _allowed_types(self, offered: Iterable[str]) -> list[InstanceType]:
        """Return the types that the fleet file allows, that are sold as spot instances and that can boot the image.

        Args:
            offered: Names of the types that the region's zones offer.
        """
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
        """Return a subnet for each zone: zone → id. Only one, because EC2 refuses a fleet that contains a pool twice.

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
    """Return the names of the makers of a type's GPUs; empty if it has none."""
    return {gpu.get("Manufacturer", "") for gpu in item.get("GpuInfo", {}).get("Gpus", ())}


def _find_image(region: AwsRegion, wanted: str | None) -> Image:
    """Find a machine image in a region.

    Args:
        region: The region.
        wanted: The id of an image (ami-…); OWNER/NAME for the newest image of this owner whose name begins so; or None
            for Ubuntu 24.04.

    Raises:
        CloudRefusal, FleetError: There is no such image, or it is for ARM.
    """
    wanted = wanted or UBUNTU
    if wanted.startswith("ami-"):
        # Use a filter, for which an unknown id, or one of another region, gives an empty answer and not an error.
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
    # At equal dates compare ids, so that two reconcilers choose the same image and so the same launch template.
    newest = max(found, key=lambda image: (image.get("CreationDate", ""), image["ImageId"]))
    root = newest.get("RootDeviceName", "/dev/sda1")
    # A disk smaller than the image's own cannot be launched. Images may list other disks, which do not count.
    sizes = [
        d["Ebs"].get("VolumeSize", 0)
        for d in newest.get("BlockDeviceMappings", ())
        if d.get("DeviceName") == root and "Ebs" in d
    ]
    return Image(newest["ImageId"], newest.get("Architecture", "x86_64"), root, max(sizes, default=0))
