"""Whom to ask for a cloud's prices."""

from collections.abc import Mapping

from vcdl.errors import FleetError, FleetNotAuthorised
from vcdl.fleet.refresh_prices import PriceSource
from vcdl.fleet.settings import Cloud

GCP_KEY_VARIABLE = "VCDL_GCP_API_KEY"


def price_source(cloud: Cloud, environment: Mapping[str, str]) -> PriceSource:
    """Nothing is asked yet. Raises FleetError when a client library is not installed, FleetNotAuthorised without credentials."""
    if cloud == "aws":
        try:
            from vcdl.fleet.aws.prices import AwsPrices
        except ImportError as error:
            raise FleetError("AWS's prices need the package boto3: pip install 'vcdl[fleet]'") from error
        return AwsPrices()
    from vcdl.fleet.gcp.prices import GcpPrices

    key = environment.get(GCP_KEY_VARIABLE, "").strip()
    if not key:
        raise FleetNotAuthorised(
            f"Google's price catalogue wants an API key in the environment variable {GCP_KEY_VARIABLE}: make one in the console "
            "under APIs & Services, Credentials, in a project with the Cloud Billing API enabled"
        )
    return GcpPrices(key)
