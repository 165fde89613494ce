"""The project and the account key are checked before the first launch."""

from collections.abc import Iterator

import pytest

from tests.fleet.project_page import STRONG, WEAK, project_page
from vcdl.errors import FleetError
from vcdl.fleet.project import weak_key

pytestmark = pytest.mark.server


@pytest.fixture
def url() -> Iterator[str]:
    with project_page() as url:
        yield url


def test_a_weak_key_stays_and_a_strong_one_is_replaced(url: str) -> None:
    assert weak_key(url, WEAK) == WEAK
    assert weak_key(url, STRONG) == WEAK


@pytest.mark.parametrize("key", ["8_fedcba9876543210fedcba9876543210", "f" * 32])
def test_a_key_that_the_project_does_not_know_is_refused_without_being_shown(url: str, key: str) -> None:
    with pytest.raises(FleetError, match="account") as caught:
        weak_key(url, key)
    assert key not in str(caught.value)


def test_a_project_that_is_away_is_refused_without_the_key() -> None:
    with pytest.raises(FleetError, match="cannot be read"):
        weak_key("http://127.0.0.1:9/", STRONG)


def test_what_is_no_project_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdl.fleet.project._page", lambda url: "This domain is for sale.")
    with pytest.raises(FleetError, match="is not a BOINC project"):
        weak_key(url, WEAK)
