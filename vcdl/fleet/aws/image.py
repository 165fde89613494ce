"""The machine image of a region: the fleet file's, or the newest that its owner published under a name."""

from dataclasses import dataclass

from vcdl.errors import FleetError
from vcdl.fleet.aws.region import AwsRegion, named

UBUNTU = "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-"
"""Canonical's account, and how the names of its Ubuntu 24.04 begin."""


@dataclass(frozen=True)
class Image:
    """What a launch needs to know of an image."""

    id: str
    architecture: str
    """`x86_64` or `arm64`: types of the other kind cannot boot it."""
    root_device: str
    root_gb: int


def find_image(region: AwsRegion, wanted: str | None) -> Image:
    """`wanted`: an id (ami-…), or OWNER/NAME: the newest image of that owner whose name begins so; None: Ubuntu.

    Raises AwsRefusal, and FleetError when there is none.
    """
    wanted = wanted or UBUNTU
    if wanted.startswith("ami-"):
        # By filter: an id that is not there is then an empty answer, also while another region's is meant.
        found = list(region.all_of("describe_images", "Images", Filters=[named("image-id", wanted)]))
    else:
        owner, _, name = wanted.partition("/")
        if not name:
            raise FleetError(
                f"image: {wanted} is neither an AMI's id (ami-…) nor OWNER/NAME; change it in the fleet file"
            )
        filters = [named("name", f"{name}*"), named("state", "available")]
        found = list(region.all_of("describe_images", "Images", Owners=[owner], Filters=filters))
    if not found:
        raise FleetError(
            f"there is no image {wanted} in {region.name}: an id is of one region, so give each place its own `image`, "
            "or name it as OWNER/NAME"
        )
    newest = max(found, key=lambda image: (image.get("CreationDate", ""), image["ImageId"]))
    root = newest.get("RootDeviceName", "/dev/sda1")
    sizes = [
        d["Ebs"].get("VolumeSize", 0)
        for d in newest.get("BlockDeviceMappings", ())
        if d.get("DeviceName") == root and "Ebs" in d
    ]
    return Image(newest["ImageId"], newest.get("Architecture", "x86_64"), root, max(sizes, default=0))
