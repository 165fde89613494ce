"""The lock of a runtime: the version and the hashes of each package, for every platform and Python at once.

`wrappers/runtime/BACKEND.lock` is what `make lock` writes from `BACKEND.in`, in the form of pip's requirements.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from vcdl.boinc.runtime.platforms import Platform
from vcdl.errors import GridError
from vcdl.files.shipped import shipped

BACKENDS = ("jax", "tensorflow")
_LATEST_PATCH = 99

NOT_ON_CLIENTS = frozenset(
    # They come with TensorFlow for the display of training (tensorboard), for its build (libclang), or for programs
    # that install packages. A client shows, builds and installs nothing.
    [
        "libclang",
        "markdown",
        "markupsafe",
        "pillow",
        "setuptools",
        "tensorboard",
        "tensorboard-data-server",
        "werkzeug",
        "wheel",
    ]
)


@dataclass(frozen=True)
class Pinned:
    """A package in one version, with the hashes of all its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def line(self) -> str:
        """As pip reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={each}" for each in self.hashes)])


def lock_of(backend: str, gpu: bool) -> Path:
    """The lock of a backend's runtime."""
    return shipped("wrappers") / "runtime" / f"{backend}{'-gpu' if gpu else ''}.lock"


def pinned(lock: Path, platform: Platform, minor: str) -> Sequence[Pinned]:
    """The packages that a lock names for a platform's Python 3.`minor`, without those that no client imports.

    Raises GridError.
    """
    environment = {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": minor,
        "python_full_version": f"{minor}.{_LATEST_PATCH}",
        "extra": "",
        **platform.markers,
    }
    found = []
    for entry in lock.read_text().replace("\\\n", " ").splitlines():
        if not entry.strip() or entry.startswith("#"):
            continue
        text, *hashes = re.split(r"\s+--hash=", entry.strip())
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise GridError(f"{lock} is damaged ({error}): restore it, or write it anew with make lock") from None
        if requirement.name not in NOT_ON_CLIENTS and (
            requirement.marker is None or requirement.marker.evaluate(environment)
        ):
            found.append(Pinned(requirement.name, str(requirement.specifier).removeprefix("=="), tuple(hashes)))
    return found
