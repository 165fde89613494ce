"""Baked images in one region: AMIs of this account with the fleet's tag, and the snapshots behind them."""

from vcdl.fleet.aws.refusal import IMAGE_EXISTS
from vcdl.fleet.aws.region import AwsRegion, fleet_filter, tag_specifications, tags_of
from vcdl.fleet.provider import SETUP_TAG, BakedImage, image_name
from vcdl.fleet.refusal import CloudRefusal, one_line
from vcdl.fleet.settings import FleetSettings

_TAGGED = ("image", "snapshot")


def find_images(region: AwsRegion, fleet: str) -> tuple[BakedImage, ...]:
    """The images of a fleet. Raises CloudRefusal."""
    found = []
    for item in region.all_of("describe_images", "Images", Owners=["self"], Filters=[fleet_filter(fleet)]):
        disks = [device["Ebs"] for device in item.get("BlockDeviceMappings", ()) if "Ebs" in device]
        has_failed = item["State"] not in ("pending", "available")
        why = one_line(item.get("StateReason", {}).get("Message", "")) or item["State"]
        image = BakedImage(
            id=item["ImageId"],
            region=region.name,
            setup=tags_of(item).get(SETUP_TAG, ""),
            base=item.get("Description", ""),
            gb=sum(disk.get("VolumeSize", 0) for disk in disks),
            is_ready=item["State"] == "available",
            failure=why if has_failed else "",
            snapshots=tuple(disk["SnapshotId"] for disk in disks if disk.get("SnapshotId")),
        )
        found.append(image)
    return tuple(found)


def make_image(region: AwsRegion, settings: FleetSettings, instance_id: str, setup: str, base: str) -> None:
    """An image of a running instance, which has written everything to its disk. Raises CloudRefusal."""
    try:
        region.call(
            "create_image",
            InstanceId=instance_id,
            Name=image_name(settings.name, setup),
            Description=base,
            NoReboot=True,
            TagSpecifications=tag_specifications(settings, _TAGGED, {SETUP_TAG: setup}),
        )
    except CloudRefusal as refused:
        if refused.code != IMAGE_EXISTS:
            raise


def copy_image(region: AwsRegion, settings: FleetSettings, image: BakedImage) -> None:
    """A copy of another region's image. Raises CloudRefusal."""
    region.call(
        "copy_image",
        SourceRegion=image.region,
        SourceImageId=image.id,
        Name=image_name(settings.name, image.setup),
        Description=image.base,
        ClientToken=f"{image.id}-{region.name}",  # AWS copies once for a token
        TagSpecifications=tag_specifications(settings, _TAGGED, {SETUP_TAG: image.setup}),
    )
