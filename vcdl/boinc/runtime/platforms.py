"""The platforms of volunteers' machines: their names for BOINC and for wheels, and the places of files in a runtime."""

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vcdl.errors import GridError


@dataclass(frozen=True)
class Platform:
    """One kind of volunteers' machines."""

    name: str
    boinc: str
    """Its name in BOINC's table of platforms."""
    markers: dict[str, str] = field(hash=False)
    """Its environment markers (PEP 508) without Python's version."""
    wheels: str
    """Its wheels, by uv's name. On Linux for glibc 2.28 or older: Debian 10, RHEL 8, Ubuntu 20.04 and later."""
    program: PurePosixPath
    """The Python in an unpacked runtime."""
    processor_needs: tuple[str, ...] = ()
    """Features of the processor without which the backends' wheels do not run."""

    @property
    def wheel_variables(self) -> dict[str, str]:
        """Variables for uv: the oldest macOS."""
        return {"MACOSX_DEPLOYMENT_TARGET": "12.0"} if self.markers["sys_platform"] == "darwin" else {}

    @property
    def is_windows(self) -> bool:
        return self.markers["sys_platform"] == "win32"

    def library(self, minor: str) -> PurePosixPath:
        """The folder of Python's own modules; `minor`: 3.12, for example."""
        return PurePosixPath("Lib") if self.is_windows else PurePosixPath("lib") / f"python{minor}"

    def packages(self, minor: str) -> PurePosixPath:
        """The folder of packages."""
        return self.library(minor) / "site-packages"


def _markers(sys_platform: str, machine: str, system: str, os_name: str) -> dict[str, str]:
    return {"sys_platform": sys_platform, "platform_machine": machine, "platform_system": system, "os_name": os_name}


PLATFORMS = (
    Platform(
        "linux-x86_64",
        "x86_64-pc-linux-gnu",
        _markers("linux", "x86_64", "Linux", "posix"),
        "x86_64-manylinux_2_28",
        PurePosixPath("bin/python3"),
        ("avx",),
    ),
    Platform(
        "linux-aarch64",
        "aarch64-unknown-linux-gnu",
        _markers("linux", "aarch64", "Linux", "posix"),
        "aarch64-manylinux_2_28",
        PurePosixPath("bin/python3"),
    ),
    Platform(
        "windows-x86_64",
        "windows_x86_64",
        _markers("win32", "AMD64", "Windows", "nt"),
        "x86_64-pc-windows-msvc",
        PurePosixPath("python.exe"),
        ("avx",),
    ),
    Platform(
        "macos-arm64",
        "arm64-apple-darwin",
        _markers("darwin", "arm64", "Darwin", "posix"),
        "aarch64-apple-darwin",
        PurePosixPath("bin/python3"),
    ),
)
LINUX = PLATFORMS[0]


def platform_named(name: str) -> Platform:
    """The platform with our own name, or BOINC's. Raises GridError."""
    for platform in PLATFORMS:
        if name in (platform.name, platform.boinc):
            return platform
    raise GridError(f"there is no platform {name}: take {', '.join(platform.name for platform in PLATFORMS)}")
