"""The provider of a fleet's cloud; its client library is imported here, and only that one."""

from vcdl.errors import FleetError
from vcdl.fleet.provider import Provider
from vcdl.fleet.settings import FleetSettings

_EXTRAS = {"aws": ("boto3", "fleet"), "gcp": ("google-cloud-compute", "gcp")}


def open_provider(settings: FleetSettings) -> Provider:
    """Nothing is asked of the cloud yet. Raises FleetError when its client library is not installed."""
    try:
        if settings.cloud == "aws":
            from vcdl.fleet.aws import AwsProvider

            return AwsProvider(settings)
        from vcdl.fleet.gcp import GcpProvider

        return GcpProvider(settings)
    except ImportError as error:
        package, extra = _EXTRAS[settings.cloud]
        raise FleetError(f"cloud: {settings.cloud} needs the package {package}: pip install 'vcdl[{extra}]'") from error
