"""Packages that only some of VCDL needs, which `pip install 'vcdl[EXTRA]'` brings."""

from importlib.util import find_spec

from vcdl.errors import GridError


def is_installed(*packages: str) -> bool:
    """Return whether all of some packages are installed, without importing them."""
    return all(find_spec(package) is not None for package in packages)


def require(extra: str, *packages: str) -> None:
    """Raise GridError, which names the extra, unless all of its packages are installed."""
    for package in packages:
        if not is_installed(package):
            raise GridError(f"{package} is not installed: `pip install 'vcdl[{extra}]'` brings it")
