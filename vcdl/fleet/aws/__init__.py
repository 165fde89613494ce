"""Fleets on AWS: spot instances of EC2, through boto3 (docs/fleet-aws.md).

Raises:
    FleetError if boto3 is missing.
"""

from importlib import import_module

from vcdl.errors import FleetError

try:
    import_module("boto3")
except ModuleNotFoundError as error:
    raise FleetError("cloud: aws needs the package boto3: pip install boto3") from error
