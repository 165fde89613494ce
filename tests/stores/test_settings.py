"""Where a store is: URLs, environment, and passwords that are never printed."""

from pathlib import Path

import pytest

from vcdl.errors import StoreError
from vcdl.stores.settings import Consistency, StoreSettings, Tls


def test_a_folder() -> None:
    settings = StoreSettings.parse("file:some/folder")
    assert (settings.service, settings.folder, settings.consistency) == ("file", Path("some/folder"), "strong")
    assert str(settings) == "file:some/folder"
    assert StoreSettings.parse("file:///data/weights").folder == Path("/data/weights")


def test_redis_with_everything() -> None:
    settings = StoreSettings.parse("rediss://me:p%40ss@host.example:7000/3?ca=/etc/ca.pem", "eventual")
    assert settings == StoreSettings(
        service="redis",
        consistency=Consistency.EVENTUAL,
        host="host.example",
        port=7000,
        user="me",
        password="p@ss",
        database="3",
        socket="",
        tls=Tls.VERIFY,
        ca="/etc/ca.pem",
    )
    assert str(settings) == "rediss://me:***@host.example:7000/3?ca=/etc/ca.pem"


@pytest.mark.parametrize(
    "url", ["redis://me:hidden@h/1", "rediss://:hidden@h", "mysql://me:hidden@h/d", "mysql://me:hidden@/d?socket=/s"]
)
def test_a_password_is_never_printed(url: str) -> None:
    settings = StoreSettings.parse(url)
    assert settings.password == "hidden"
    assert "hidden" not in f"{settings} {settings!r}"
    assert "***" in str(settings)
    assert StoreSettings.parse(str(settings)).password == "***", "and the rest is still the URL"


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hid/den@host/0", "redis://me:hid?den@host/0", "redis://me:hid?den=1@host/0",
        "mysql://me:hid#den@host/d", "mysql://me:[hidden@host/d", "redis://me:hidden@host/zero",
        "redis://me:hidden@host/0?den=hid", "redis://:hidden@h:port", "mysql://me:hidden@host",
        "mysql://:hidden@host/d", "postgres://me:hidden@host/d", "hidden", "file:", "redis://h?tls=hidden",
    ],
)  # fmt: skip
def test_a_url_that_is_not_valid_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(StoreError, match=r"^store: ") as caught:
        StoreSettings.parse(url)
    assert "hid" not in str(caught.value)
    assert "den" not in str(caught.value).replace("identity", "")
    assert caught.value.__cause__ is None


def test_the_environment_fills_in_what_the_url_does_not_say() -> None:
    environment = {"VCDL_STORE_URL": "redis://elsewhere/0", "VCDL_STORE_PASSWORD": "hidden"}
    assert StoreSettings.parse("", environment=environment).host == "elsewhere"
    assert StoreSettings.parse("", environment=environment).password == "hidden"
    assert StoreSettings.parse("redis://here", environment=environment).host == "here"
    assert StoreSettings.parse("redis://:own@here", environment=environment).password == "own"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://me:hidden@Host", "redis://host:6379/0"),
        ("rediss://other@host:6379/0?ca=/ca.pem", "redis://host:6379/0"),
        ("redis://[::1]:7000/3", "redis://[::1]:7000/3"),
        ("mysql://me:hidden@host/vcdl?tls=require", "mysql://host:3306/vcdl"),
        ("mysql://me@/vcdl?socket=/run/m.sock&tls=off", "mysql:///vcdl?socket=/run/m.sock"),
        ("file:///data/weights", "file:/data/weights"),
    ],
)
def test_an_address_is_the_place_without_login_and_protection(url: str, address: str) -> None:
    assert StoreSettings.parse(url).address == address
