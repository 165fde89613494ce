"""Of the cases of a test that is marked `sampled(n)`, every n-th runs in `make test`, the others in `make nightly`."""

import pytest


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(5))
def test_all_but_every_third_case_are_nightly(number: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("nightly") is None) == (number % 3 == 0)
