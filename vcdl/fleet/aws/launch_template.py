"""Launch templates hold what all instances of a launch have in common. Their names are hashes of their content.

So no template is ever changed, and two reconcilers that need the same one make it once. The sweep deletes them.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from vcdl.errors import FleetError
from vcdl.fleet.aws.catalogue import Image
from vcdl.fleet.aws.refusal import ALREADY_EXISTS
from vcdl.fleet.aws.region import AwsRegion, tag_specifications
from vcdl.fleet.machine import MAX_BYTES, compressed
from vcdl.fleet.refusal import CloudRefusal
from vcdl.fleet.settings import FleetSettings

_T_TYPE = re.compile(r"t\d")
_VERSION = "1"
"""The only version of a template that is never changed."""


def is_burstable(type: str) -> bool:
    """Whether a type earns and spends CPU credits: t2, t3, t3a, t4g."""
    return _T_TYPE.match(type) is not None


def template_data(
    settings: FleetSettings, region: str, image: Image, user_data: str, burstable: bool, on_demand: bool
) -> Mapping[str, Any]:
    """`LaunchTemplateData`. Raises FleetError for user data that AWS would refuse.

    Only T types take a credit specification, so they have a template of their own. Instances and volumes get their tags
    from the launch, which knows its token; other resources get theirs here. No MaxPrice: it only adds interruptions.
    """
    raw = compressed(user_data)
    if len(raw) > MAX_BYTES:
        raise FleetError(f"the user data has {len(raw)} bytes, and AWS takes {MAX_BYTES}: shorten it")
    groups = [it for place in settings.places if place.region == region for it in place.security_groups]
    # With an interface of its own a template names the groups there, and the launch's override the subnet.
    interface = {"DeviceIndex": 0, "AssociatePublicIpAddress": settings.public_address, "DeleteOnTermination": True}
    disk = {"VolumeSize": max(settings.disk_gb, image.root_gb), "VolumeType": "gp3", "DeleteOnTermination": True}
    data = {
        "ImageId": image.id,
        "UserData": base64.b64encode(raw).decode(),
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        "NetworkInterfaces": [{**interface, **({"Groups": groups} if groups else {})}],
        # The agent reads notices and the drain mark there; a hop limit of 1 keeps containers and proxies out.
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": tag_specifications(
            settings, ("network-interface", *(() if on_demand else ("spot-instances-request",)))
        ),
    }
    return {**data, "CreditSpecification": {"CpuCredits": settings.cpu_credits}} if burstable else data


def ensure_template(region: AwsRegion, settings: FleetSettings, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `LaunchTemplateSpecification` of a template with this content, created if missing. Raises CloudRefusal."""
    content = json.dumps(data, sort_keys=True).encode()
    name = f"vcdl-{settings.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    try:
        region.call(
            "create_launch_template",
            LaunchTemplateName=name,
            LaunchTemplateData=data,
            TagSpecifications=tag_specifications(settings, ("launch-template",)),
        )
    except CloudRefusal as refused:
        if refused.code != ALREADY_EXISTS:
            raise
    return {"LaunchTemplateName": name, "Version": _VERSION}
