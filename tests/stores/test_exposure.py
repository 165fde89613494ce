"""A store on a network without TLS or a password is seen, and one of this machine is left alone."""

import pytest

from vcdl.stores.exposure import exposures
from vcdl.stores.settings import StoreSettings


def seen(url: str, password: str = "") -> list[str]:
    return [each.what for each in exposures(StoreSettings.parse(url, "strong", {"VCDL_STORE_PASSWORD": password}))]


@pytest.mark.parametrize(
    "url",
    [
        "file:/mnt/nfs/weights", "redis://localhost/0", "redis://127.0.0.1", "redis://127.1.2.3:6380/1",
        "redis://[::1]/0", "redis://[::ffff:127.0.0.1]/0", "redis:///0?socket=/run/redis.sock",
        "mysql://me@LocalHost./vcdl", "mysql://me@/vcdl?socket=/run/mariadb.sock", "rediss://:hush@redis.example.org",
        "mysql://me:hush@db.example.org/vcdl?tls=verify", "redis://:hush@redis.example.org?tls=require",
    ],
)  # fmt: skip
def test_nothing_is_said_of_a_store_that_is_closed(url: str) -> None:
    assert seen(url) == []


@pytest.mark.parametrize("host", ["redis.example.org", "10.0.0.5", "192.168.1.2", "[fd00::1]", "localhost.example.org"])
def test_without_tls_and_password_both_are_said(host: str) -> None:
    assert seen(f"redis://{host}/0") == [
        f"redis://{host}:6379/0 is reached over a network without TLS: anybody on the way can read and change the "
        "weights",
        f"redis://{host}:6379/0 is reached over a network without a password: anybody who reaches it can replace the "
        "weights",
    ]


@pytest.mark.parametrize("url", ["redis://:hush@a.org", "mysql://me:hush@a.org/vcdl"])
def test_a_password_that_travels_in_the_open_is_said_and_not_shown(url: str) -> None:
    (what,) = seen(url)
    assert what.endswith("can read and change the weights and read the password")
    assert "hush" not in what


@pytest.mark.parametrize("url", ["rediss://a.org", "mysql://me@a.org/vcdl?tls=require"])
def test_tls_alone_lets_everybody_in(url: str) -> None:
    (what,) = seen(url)
    assert "without a password" in what
    assert seen(url, password="hush") == [], "the environment has one"


@pytest.mark.parametrize(("url", "word"), [("redis://a.org", "rediss://"), ("mysql://me@a.org/vcdl", "`?tls=verify`")])
def test_the_cure_names_what_to_write(url: str, word: str) -> None:
    first, second = exposures(StoreSettings.parse(url))
    assert word in first.cure
    assert "VCDL_STORE_PASSWORD" in second.cure
