"""A connection to a Redis server for the weight store, and the meaning of the server's errors and of its INFO."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vcdl.errors import StoreError, StoreUnavailable, one_line
from vcdl.stores.settings import PASSWORD_VARIABLE, StoreSettings, Tls

try:
    import redis
    from redis import exceptions
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ModuleNotFoundError as error:
    raise StoreError("a redis:// store needs the package redis: pip install redis") from error

_CONNECT_S = 10.0
_ANSWER_S = 20.0
"""Longest wait for an answer, in seconds: enough for a chunk on a slow network. If packets are dropped, an operation
fails after one such wait, because a BOINC server waits only 50 s for its rows (docs/decisions/009)."""

# The first words of Redis' errors. redis-py has no class for most of them, and adds its own words in front in a
# pipeline.
_NOT_NOW = ("MISCONF", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")
_LOGIN = ("NOAUTH", "WRONGPASS", "NOPERM")


class ServerSilent(StoreUnavailable):
    """The server does not answer, as when packets are dropped: every further command would time out as well."""


def open_client(settings: StoreSettings) -> Any:
    """Return a connection, typed Any because redis-py's stubs know only some of its return types."""
    return redis.Redis(
        host=settings.host,
        port=settings.port,
        unix_socket_path=settings.socket or None,
        db=int(settings.database or "0"),
        username=settings.user or None,
        password=settings.password or None,
        socket_timeout=_ANSWER_S,
        socket_connect_timeout=_CONNECT_S,
        protocol=2,
        # The caller retries with backoff and must learn of a lost connection immediately; redis-py would hide it by
        # resending the command.
        retry=Retry(NoBackoff(), 0),
        ssl=settings.tls != Tls.OFF,
        ssl_cert_reqs="required" if settings.tls == Tls.VERIFY else "none",
        ssl_check_hostname=settings.tls == Tls.VERIFY,
        ssl_ca_certs=settings.ca or None,
    )


@contextmanager
def translate_errors(settings: StoreSettings) -> Iterator[None]:
    """Convert every exception of redis-py in the block to a StoreError that says what to do.

    Args:
        settings: The server, whose URL the messages show.

    Raises:
        ServerSilent: The server does not answer.
        StoreUnavailable: It cannot be reached or accepts no writes now, so another try may succeed.
        StoreError: It refused the login or a command.
    """
    try:
        yield
    except exceptions.NoPermissionError as error:
        raise StoreError(
            f"{settings} denied this user a permission ({one_line(error)}): "
            "grant it the keys and commands that docs/stores.md lists"
        ) from None
    except exceptions.AuthenticationError as error:
        raise StoreError(
            f"{settings} refused the login ({one_line(error)}): "
            f"check the user and the password in the URL or in {PASSWORD_VARIABLE}"
        ) from None
    except exceptions.TimeoutError as error:
        raise ServerSilent(f"{settings} does not answer ({one_line(error)}): is the network up?") from None
    except exceptions.ConnectionError as error:
        if "CERTIFICATE" in str(error).upper():
            raise StoreError(
                f"{settings}: the TLS connection failed ({one_line(error)}): "
                "name the certificate authority with ca=PATH in the URL, and use a host name in the certificate"
            ) from None
        raise StoreUnavailable(f"{settings} cannot be reached ({one_line(error)}): is Redis running?") from None
    except (exceptions.OutOfMemoryError, exceptions.ReadOnlyError) as error:
        raise StoreUnavailable(f"{settings} refuses writes ({one_line(error)}): free memory, or wait") from None
    except exceptions.RedisError as error:
        words = one_line(error)
        if any(code in words for code in _NOT_NOW):
            raise StoreUnavailable(f"{settings} accepts no writes now ({words}): see the server's log") from None
        if any(code in words for code in _LOGIN):
            raise StoreError(
                f"{settings} requires a login ({words}): put it in the URL or the password in {PASSWORD_VARIABLE}"
            ) from None
        if "DB index" in words:
            raise StoreError(
                f"{settings}: {words}: the number at the end of the URL is the database, 0 to 15 by default"
            ) from None
        raise StoreError(f"{settings} refused a command ({words}): Redis 7 or later is needed") from None


def problem_of(facts: Mapping[str, Any]) -> str:
    """Return why a server cannot keep weights, according to its INFO, or "" if it can."""
    mode, policy = facts.get("redis_mode", "standalone"), facts.get("maxmemory_policy", "noeviction")
    if mode == "sentinel":
        return "is a Sentinel, which keeps no data, and VCDL does not ask it for the primary: name the primary itself"
    if mode == "cluster":
        return "is a node of a Redis Cluster, which VCDL does not support: use a separate Redis server"
    if policy != "noeviction":
        return (
            f"may drop weights when its memory is full: its maxmemory-policy is {policy}; "
            "set it to noeviction (`CONFIG SET maxmemory-policy noeviction`, and in redis.conf)"
        )
    version = str(facts.get("redis_version", "7"))
    return f"is Redis {version}: 7 or later is needed" if int(version.partition(".")[0]) < 7 else ""
