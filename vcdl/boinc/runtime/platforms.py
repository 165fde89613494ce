"""The platforms for which runtimes are built.

Machines of other systems run a Linux runtime in a container.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from vcdl.errors import GridError


@dataclass(frozen=True)
class Platform:
    """A kind of machine for which runtimes are built, with its names in the tools involved."""

    name: str
    boinc: str
    """Name of the platform in BOINC's table."""
    machine: str
    wheels: str
    """uv's name of the platform's wheels: for glibc 2.28 or older, as in Debian 10, RHEL 8, Ubuntu 20.04 and later."""
    debian: str
    """Debian's name for the processor."""
    processor_needs: tuple[str, ...] = ()
    """Processor features without which the backends' wheels do not run."""


PROGRAM = PurePosixPath("bin/python3")
"""The Python in an unpacked runtime."""
PLATFORMS = (
    Platform("linux-x86_64", "x86_64-pc-linux-gnu", "x86_64", "x86_64-manylinux_2_28", "amd64", ("avx",)),
    Platform("linux-aarch64", "aarch64-unknown-linux-gnu", "aarch64", "aarch64-manylinux_2_28", "arm64"),
)
LINUX = PLATFORMS[0]


def platform_named(name: str) -> Platform:
    """Return a platform by our own name, or by BOINC's.

    Raises:
        GridError: There is no such platform.
    """
    for platform in PLATFORMS:
        if name in (platform.name, platform.boinc):
            return platform
    raise GridError(f"there is no platform {name}: choose from {', '.join(platform.name for platform in PLATFORMS)}")


def library(minor: str) -> PurePosixPath:
    """Return the folder of Python's own modules in a runtime; `minor` is 3.12, for example."""
    return PurePosixPath("lib") / f"python{minor}"


def packages_folder(minor: str) -> PurePosixPath:
    """Return the folder of packages in a runtime."""
    return library(minor) / "site-packages"
