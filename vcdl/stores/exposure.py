"""Find security weaknesses of a store's connection, such as a missing password, and say how to remove them."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from vcdl.stores.settings import PASSWORD_VARIABLE, StoreSettings, Tls


@dataclass(frozen=True)
class Exposure:
    """One weakness of a store's connection, with its cure, as text."""

    what: str
    cure: str


def exposures(settings: StoreSettings) -> Iterator[Exposure]:
    """Yield the weaknesses of a store that is reached over a network: no TLS, no password. A local store has none."""
    if settings.kind.port is None or settings.socket or _is_this_machine(settings.host):
        return
    if settings.tls == Tls.OFF:
        secure = settings.kind.over_tls
        url = f"{secure}://" if secure else "`?tls=verify`"
        yield Exposure(
            f"{settings} is reached over a network without TLS: anybody on the way can read and change the weights"
            f"{' and read the password' if settings.password else ''}",
            f"switch TLS on in the server and write {url} in the URL, with `?ca=FILE` for your own certificate "
            "authority",
        )
    if not settings.password:
        yield Exposure(
            f"{settings} is reached over a network without a password: anybody who reaches it can replace the weights",
            f"give the server a password and set {PASSWORD_VARIABLE}, and close its port to machines that do not need "
            "it",
        )


def _is_this_machine(host: str) -> bool:
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
