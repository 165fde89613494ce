"""Unpack and check the Python of a runtime, from the archive that the operator provides."""

import os
import platform as machine
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from vcdl.boinc.runtime.platforms import PROGRAM, Platform
from vcdl.errors import GridError


def runs_here(platform: Platform) -> bool:
    """Return whether programs of the platform run on this machine."""
    return (sys.platform, machine.machine()) == ("linux", platform.machine)


def fault_of_program(program: Path, code: str, *arguments: str, **variables: str) -> str:
    """Run code with a Python in a clean environment; return the last line of its errors, or "" if it succeeds."""
    done = subprocess.run(
        [str(program), "-S", "-c", code, *arguments],
        # A clean environment, as the builder's PYTHONPATH or virtual environment would hide what the runtime lacks.
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"it ended with {done.returncode} and printed nothing"])[-1]


def unpack_python(archive: Path, platform: Platform, folder: Path) -> str:
    """Unpack a Python from a tar file into the folder, and return its version, such as 3.12.

    Raises:
        GridError: The file is not a Python for the platform.
    """
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            top = _top(members, platform, archive)
            for member, name in _below(members, top):
                _extract(tar, member, folder / name, folder, archive)
    except (tarfile.TarError, EOFError) as error:
        raise GridError(
            f"{archive} is not a complete tar file with gzip or xz ({error}): use python-build-standalone's "
            "install_only_stripped.tar.gz for this platform"
        ) from None
    return version_in(folder, platform)


def _top(members: Iterable[tarfile.TarInfo], platform: Platform, archive: Path) -> PurePosixPath:
    found = [
        PurePosixPath(member.name).parents[len(PROGRAM.parts) - 1]
        for member in members
        if PurePosixPath(member.name).parts[-len(PROGRAM.parts) :] == PROGRAM.parts
    ]
    if not found:
        raise GridError(f"{archive} has no {PROGRAM}: it is no Python for {platform.name}")
    return min(found, key=lambda path: len(path.parts))


def _below(members: Iterable[tarfile.TarInfo], top: PurePosixPath) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_relative_to(top) and path != top:
            yield member, path.relative_to(top)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folder: Path, archive: Path) -> None:
    # Check files as well: a link that came earlier in the archive could lead this member out of the folder.
    link = target.parent / member.linkname if member.issym() else target
    if not link.resolve().is_relative_to(folder.resolve()):
        raise GridError(f"{archive} holds {member.name}, which leads out of it")
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
    elif member.issym():
        target.symlink_to(member.linkname)
    elif (content := tar.extractfile(member)) is not None:  # hard links, too
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        target.chmod(0o755 if member.mode & 0o100 else 0o644)


def version_in(folder: Path, platform: Platform) -> str:
    """Return the version of the Python in a folder, such as 3.12.

    Raises:
        GridError: There is none.
    """
    names = (folder / "lib").iterdir()
    minors = {match[1] for path in names if (match := re.fullmatch(r"python3\.(\d+)", path.name))}
    if len(minors) != 1:
        raise GridError(f"the Python for {platform.name} has no single version: found {sorted(minors)}")
    return f"3.{minors.pop()}"
