"""Build the base image of a volunteer's container: a C library and a shell, from Debian's signed packages.

It has a few megabytes. mmdebstrap unpacks the packages and runs nothing of them, so the base of any processor can be
built on this one. Equal versions of the packages give equal bytes.
"""

import gzip
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from vcdl.boinc.runtime.archive import EARLIEST_S
from vcdl.boinc.runtime.platforms import Platform, platform_named
from vcdl.errors import GridError
from vcdl.files.atomic import whole_file

MARK = "etc/vcdl_base"
"""The file that names the platform; it shows that an archive is a base."""
_RELEASE = "bookworm"
"""Debian 12, whose C library (2.36) all wheels of the lock accept."""
_PACKAGES = "busybox-static,libc6,libstdc++6,libgcc-s1"
_KEPT = ("bin/busybox", "lib/*", "lib64/*", "usr/lib/*.so*", "usr/share/doc/*/copyright")
_DROPPED = ("*/gconv/*", "lib/systemd/*")
"""Exceptions from _KEPT: character sets take 8 MB, and systemd does not run in a container."""
_TOOLS = ("sh", "sed", "tar", "gzip", "tr", "head", "tail", "find", "mkdir", "rm", "ls", "cat", "id")
"""Programs of busybox by name: those that the launcher needs, and some for debugging in a container."""
_OPEN_FOLDERS = ("app", "kept", "tmp", "projects")
"""Folders that docker_wrapper mounts, open to every user: a new volume takes its mode from the image."""
_PASSWD = b"root:x:0:0:root:/app:/bin/sh\n"
_MANY_BYTES = 256 << 20
"""Bytes above which a file is refused unread: far more than a base has."""


def build_base(platform: Platform, output: Path) -> None:
    """Download Debian's packages for a platform, and write the base as an archive that Podman and Docker unpack.

    Raises:
        GridError: mmdebstrap is missing or failed.
        OSError: The archive cannot be written.
    """
    program = shutil.which("mmdebstrap")
    if program is None:
        raise GridError("mmdebstrap, which makes the base of a container, is missing: apt install mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="vcdl-base-") as folder:
        unpacked = Path(folder) / "debian.tar"
        # "extract" runs no maintainer scripts, which would need the other processor or an emulator.
        command = [program, "--quiet", "--variant=extract", f"--include={_PACKAGES}", f"--arch={platform.debian}"]
        done = subprocess.run([*command, _RELEASE, unpacked], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise GridError(f"mmdebstrap could not unpack Debian's packages: {' '.join(done.stderr.split())[-600:]}")
        with (
            whole_file(output) as temporary,
            temporary.open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as target,
            tarfile.open(unpacked) as source,
        ):
            # Sort the members, so that equal packages give equal bytes, in whatever order mmdebstrap wrote them.
            for member, content in sorted(_members(source, platform), key=lambda each: each[0].name):
                target.addfile(member, content)
        output.chmod(0o644)


def platform_of_base(path: Path) -> Platform:
    """Return the platform of a base's archive.

    Raises:
        GridError: The file is not a base.
    """
    try:
        if path.stat().st_size > _MANY_BYTES:
            raise tarfile.ReadError("it is too large")
        with tarfile.open(path, "r:gz") as tar:
            mark = tar.extractfile(MARK)
            return platform_named(mark.read(64).decode().strip() if mark else "")
    except OSError as error:
        raise GridError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tarfile.TarError, KeyError, UnicodeDecodeError, EOFError, GridError):
        raise GridError(f"{path} is no base of a container: make one with vcdl client base") from None


def _members(source: tarfile.TarFile, platform: Platform) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    for member in source.getmembers():
        _plain(member)
        if not member.isdir() and _is_kept(member.name):
            yield member, source.extractfile(member) if member.isfile() else None
    for name in _OPEN_FOLDERS:
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        yield _plain(folder), None
    for name in _TOOLS:
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        yield _plain(link), None
    for path, content in ((MARK, f"{platform.name}\n".encode()), ("etc/passwd", _PASSWD)):
        file = tarfile.TarInfo(path)
        file.size = len(content)
        yield _plain(file), io.BytesIO(content)


def _is_kept(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in _KEPT) and not any(fnmatch(name, pattern) for pattern in _DROPPED)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Reset the attributes of an archive member that differ between builds, in place, and return it."""
    member.name = member.name.removeprefix("./")
    member.mtime, member.uid, member.gid, member.uname, member.gname = EARLIEST_S, 0, 0, "", ""
    return member
