"""Find which optional packages of VCDL are installed; `pip install 'vcdl[EXTRA]'` installs those of an extra."""

from importlib.util import find_spec

from vcdl.errors import GridError


def is_installed(*packages: str) -> bool:
    """Return whether all of the given packages can be imported, without importing them."""
    return all(find_spec(package) is not None for package in packages)


def require(extra: str, *packages: str) -> None:
    """Raise GridError, which names the extra to install, if one of its packages is not installed."""
    for package in packages:
        if not is_installed(package):
            raise GridError(f"{package} is not installed: `pip install 'vcdl[{extra}]'` brings it")


def installed_extras() -> list[str]:
    """Return the names of VCDL's extras whose packages are all installed, even if they were installed separately."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    ours = metadata.metadata("vcdl")
    installed = {canonicalize_name(each.metadata["Name"] or "") for each in metadata.distributions()}
    missing = [
        each.marker
        for each in map(Requirement, ours.get_all("Requires-Dist") or ())
        # A package without a marker belongs to no extra.
        if each.marker and canonicalize_name(each.name) not in installed
    ]
    extras = ours.get_all("Provides-Extra") or ()
    return [extra for extra in extras if not any(marker.evaluate({"extra": extra}) for marker in missing)]
