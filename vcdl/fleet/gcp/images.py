"""Baked images of a project, which are in every region."""

from typing import Any

from vcdl.fleet.gcp.connection import Connection
from vcdl.fleet.gcp.refusal import EXISTS, kind_of, refusal
from vcdl.fleet.provider import FLEET_TAG, SETUP_TAG, BakedImage, image_name
from vcdl.fleet.refusal import CloudRefusal
from vcdl.fleet.settings import FleetSettings

_LIMIT_S = 900.0


def find_images(connection: Connection, wanted: str) -> tuple[BakedImage, ...]:
    """The images that a filter (`labels.vcdl-fleet = "night"`) selects. Raises CloudRefusal."""
    return tuple(_image(connection, item) for item in connection.listed(connection.images.list, filter=wanted))


def make_image(connection: Connection, settings: FleetSettings, id: str, setup: str, base: str) -> None:
    """An image of a running machine, which has written everything to its disk. Raises CloudRefusal."""
    zone, name = id.split("/")
    disk = connection.call(connection.instances.get, zone=zone, instance=name).disks[0].source
    resource = {
        "name": image_name(settings.name, setup),
        "description": base,
        "labels": {**settings.tags, FLEET_TAG: settings.name, SETUP_TAG: setup},
        "source_disk": disk.partition("/compute/v1/")[2] or disk,
    }
    try:
        # Forced, as the disk is in use.
        begun = connection.call(connection.images.insert_unary, image_resource=resource, force_create=True)
    except CloudRefusal as refused:
        if refused.code != EXISTS:
            raise
        return
    done = connection.wait(connection.global_operations.wait, begun.name, _LIMIT_S)
    for error in done.error.errors:
        raise refusal(kind_of(error.code, done.http_error_status_code), f"{error.code}: {error.message}")


def _image(connection: Connection, item: Any) -> BakedImage:
    return BakedImage(
        id=f"projects/{connection.project}/global/images/{item.name}",
        region="",
        setup=item.labels.get(SETUP_TAG, ""),
        base=item.description,
        gb=item.disk_size_gb,
        is_ready=item.status == "READY",
        failure=f"its state is {item.status}" if item.status in ("FAILED", "DELETING") else "",
    )
