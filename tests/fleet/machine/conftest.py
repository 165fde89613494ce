"""The metadata services of both clouds."""

from collections.abc import Iterator

import pytest

from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata, served


@pytest.fixture(params=[AwsMetadata, GcpMetadata], ids=["aws", "gcp"])
def metadata(request: pytest.FixtureRequest) -> Iterator[AwsMetadata | GcpMetadata]:
    made: AwsMetadata | GcpMetadata = request.param()
    with served(made):
        yield made
