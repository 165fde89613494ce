"""The packages of a runtime: wheels of its platform, fetched by pip and unpacked without running anything of them."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from vcdl.boinc.runtime.lock import Pinned
from vcdl.boinc.runtime.platforms import Platform
from vcdl.errors import GridError

_INSTALLED = ("purelib", "platlib")
"""The parts of a wheel's .data folder that belong into site-packages; a client needs no scripts and no headers."""


def download(platform: Platform, minor: str, packages: Sequence[Pinned], folder: Path) -> Sequence[Path]:
    """Fetch the wheels into the folder, with pip, which checks their hashes. Raises GridError."""
    folder.mkdir(parents=True, exist_ok=True)
    tags = [f"--platform={tag}" for tag in platform.wheel_tags]
    abis = [f"--abi={abi}" for abi in (f"cp{minor.replace('.', '')}", "abi3", "none")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{package.line}\n" for package in packages))
        file.flush()
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--require-hashes",
            "--only-binary=:all:", "--implementation=cp", f"--python-version={minor}", *abis, *tags,
            f"--requirement={file.name}", f"--dest={folder}",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or done.stdout.splitlines()
        raise GridError(f"pip could not fetch the wheels for {platform.name}: {' '.join(said[-2:])[-600:]}")
    return [_wheel(folder, package) for package in packages]


def _wheel(folder: Path, package: Pinned) -> Path:
    begin = f"{package.name.replace('-', '_').replace('.', '_')}-{package.version}-".lower()
    for path in folder.glob("*.whl"):
        name, *rest = path.name.split("-")
        if "-".join([name.replace(".", "_"), *rest]).lower().startswith(begin):
            return path
    raise GridError(f"pip fetched no wheel of {package.name} {package.version} into {folder}")


def unpack(wheel: Path, packages: Path) -> None:
    """Put a wheel's files into a folder of packages. Raises GridError for a name that leads out of it."""
    with zipfile.ZipFile(wheel) as archive:
        for info, name in _members(archive, wheel):
            target = packages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)


def _members(archive: zipfile.ZipFile, wheel: Path) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    for info in archive.infolist():
        name = PurePosixPath(info.filename)
        if name.is_absolute() or ".." in name.parts or "\\" in info.filename:
            raise GridError(f"{wheel.name} holds {info.filename}, which leads out of its folder")
        if info.is_dir():
            continue
        if name.parts[0].endswith(".data"):
            if name.parts[1] in _INSTALLED:
                yield info, PurePosixPath(*name.parts[2:])
        else:
            yield info, name
