"""Whether a store can be had is known before a job is prepared for it."""

import pytest

from tests.store_servers import on_server
from tests.stores.conftest import redis_client
from vcdl.errors import StoreUnavailable
from vcdl.stores.open import see_that_it_answers
from vcdl.stores.settings import StoreSettings


@pytest.mark.parametrize("service", [on_server("redis"), on_server("mysql")])
def test_a_server_that_answers_is_left_as_it_is(request: pytest.FixtureRequest, service: str) -> None:
    url = request.getfixturevalue(f"{service}_url")
    see_that_it_answers(StoreSettings.parse(url))
    if service == "redis":
        assert redis_client(url).keys("*vcdl-is-there*") == []


def test_a_folder_is_not_looked_for() -> None:
    see_that_it_answers(StoreSettings.parse("file:/nowhere"))


@pytest.mark.parametrize("url", ["redis://localhost:1/0", "mysql://nobody@127.0.0.1:1/none"])
def test_a_server_that_is_away_is_said(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        see_that_it_answers(StoreSettings.parse(url))
