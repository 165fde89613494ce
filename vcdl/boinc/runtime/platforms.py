"""The platforms of volunteers' machines: their names for BOINC and for wheels, and the places of files in a runtime."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from vcdl.errors import GridError


@dataclass(frozen=True)
class Platform:
    """One kind of volunteers' machines."""

    name: str
    boinc: str
    """Its name in BOINC's table of platforms."""
    system: str
    """Python's sys.platform."""
    machine: str
    wheels: str
    """Its wheels, by uv's name. On Linux for glibc 2.28 or older: Debian 10, RHEL 8, Ubuntu 20.04 and later."""
    program: PurePosixPath
    """The Python in an unpacked runtime."""
    processor_needs: tuple[str, ...] = ()
    """Features of the processor without which the backends' wheels do not run."""

    @property
    def wheel_variables(self) -> dict[str, str]:
        """Variables for uv: the oldest macOS."""
        return {"MACOSX_DEPLOYMENT_TARGET": "12.0"} if self.system == "darwin" else {}

    @property
    def is_windows(self) -> bool:
        return self.system == "win32"

    def library(self, minor: str) -> PurePosixPath:
        """Return the folder of Python's own modules; `minor` is 3.12, for example."""
        return PurePosixPath("Lib") if self.is_windows else PurePosixPath("lib") / f"python{minor}"

    def packages(self, minor: str) -> PurePosixPath:
        """Return the folder of packages."""
        return self.library(minor) / "site-packages"


PLATFORMS = (
    Platform(
        "linux-x86_64",
        "x86_64-pc-linux-gnu",
        "linux",
        "x86_64",
        "x86_64-manylinux_2_28",
        PurePosixPath("bin/python3"),
        ("avx",),
    ),
    Platform(
        "linux-aarch64",
        "aarch64-unknown-linux-gnu",
        "linux",
        "aarch64",
        "aarch64-manylinux_2_28",
        PurePosixPath("bin/python3"),
    ),
    Platform(
        "windows-x86_64",
        "windows_x86_64",
        "win32",
        "AMD64",
        "x86_64-pc-windows-msvc",
        PurePosixPath("python.exe"),
        ("avx",),
    ),
    Platform(
        "macos-arm64",
        "arm64-apple-darwin",
        "darwin",
        "arm64",
        "aarch64-apple-darwin",
        PurePosixPath("bin/python3"),
    ),
)
LINUX = PLATFORMS[0]


def platform_named(name: str) -> Platform:
    """Return the platform with our own name, or BOINC's. Raises GridError."""
    for platform in PLATFORMS:
        if name in (platform.name, platform.boinc):
            return platform
    raise GridError(f"there is no platform {name}: take {', '.join(platform.name for platform in PLATFORMS)}")
