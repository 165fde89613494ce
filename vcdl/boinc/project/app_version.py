"""The app version: the client's launcher and zipapp under apps/vcdl/, signed and published by BOINC's
update_versions.

A file's name contains a digest of all files of the version, because BOINC never replaces a published file.
Changed files get new names and the next version number; unchanged ones are not published again. Numbers begin
with 1.00.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.grid.project_folder import APP
from vcdl.boinc.project import files
from vcdl.boinc.project.edited_files import MT_CLASS
from vcdl.boinc.project.tools import run_tool
from vcdl.errors import GridError
from vcdl.files.shipped import shipped

PLATFORM = "x86_64-pc-linux-gnu"
GPU_CLASS = "vcdl_cuda"
_FIRST_NUMBER = 100
_FILE_PREFIX = "vcdl_client_"
_VERSION_XML = """\
<version>
    <file>
        <physical_name>{launcher}</physical_name>
        <main_program/>
    </file>
    <file>
        <physical_name>{launcher}.pyz</physical_name>
        <logical_name>vcdl_client.pyz</logical_name>
    </file>
    <api_version>7.9.0</api_version>
</version>
"""
"""Without api_version the BOINC client would talk to the program through shared memory that the program does
not have.
"""


@dataclass(frozen=True)
class ClientFiles:
    """The files that a volunteer's computer runs."""

    launcher: bytes
    zipapp: bytes

    @classmethod
    def build(cls, project_key: str = "") -> "ClientFiles":
        """Build them from this installation of VCDL. `project_key`: the one that signs weights, as JSON."""
        from vcdl.boinc.project.client_build import build_client

        with tempfile.TemporaryDirectory(prefix="vcdl-client-") as folder:
            path = Path(folder) / "vcdl_client.pyz"
            build_client(path, project_key)
            return cls((shipped("wrappers") / "linux" / "vcdl_client").read_bytes(), path.read_bytes())

    @property
    def name(self) -> str:
        """Name of the launcher; the zipapp's ends in .pyz."""
        digest = hashlib.sha256()
        for part in (_VERSION_XML.encode(), self.launcher, self.zipapp):
            digest.update(hashlib.sha256(part).digest())
        return f"{_FILE_PREFIX}{digest.hexdigest()[:12]}"

    @property
    def contents(self) -> dict[str, tuple[bytes, int]]:
        """Content and mode by physical name."""
        return {
            self.name: (self.launcher, files.PROGRAM_MODE),
            f"{self.name}.pyz": (self.zipapp, files.FILE_MODE),
            "version.xml": (_VERSION_XML.format(launcher=self.name).encode(), files.FILE_MODE),
        }


def plan_classes(threads: int) -> tuple[str, ...]:
    """The plan classes of the app versions to offer: one for the CPU, one for an NVIDIA GPU.

    A CPU task with one thread needs no plan class: the BOINC client fills the cores with as many tasks as fit
    into its memory. Offering both CPU kinds at once would be useless, as the scheduler always prefers the one
    with more threads.
    """
    return (MT_CLASS if threads > 1 else "", GPU_CLASS)


@dataclass(frozen=True)
class Published:
    """A row of app_version."""

    id: int
    number: int
    platform: str
    plan_class: str
    deprecated: bool
    xml: str

    @property
    def is_ours(self) -> bool:
        """Whether install made it; an operator may have made others (for other systems)."""
        return self.platform == PLATFORM and _FILE_PREFIX in self.xml

    @property
    def label(self) -> str:
        return f"{self.number / 100:.2f} {self.platform}{f' ({self.plan_class})' if self.plan_class else ''}"


def number_for(apps: Path, client: ClientFiles, published: Sequence[Published]) -> int:
    """The version number of these client files: their existing one, or the next."""
    folders = {number: folder for folder in _subfolders(apps / APP) if (number := _number(folder.name)) is not None}
    known = [version.number for version in published if f">{client.name}<" in version.xml]
    known += [number for number, folder in folders.items() if any(folder.glob(f"*/{client.name}"))]
    return max(known) if known else max([*folders, *(version.number for version in published), _FIRST_NUMBER - 1]) + 1


def version_folders(apps: Path, number: int, classes: Iterable[str]) -> list[Path]:
    """The folders of an app version, one per plan class."""
    top = apps / APP / f"{number // 100}.{number % 100:02d}"
    return [top / (PLATFORM + (f"__{name}" if name else "")) for name in classes]


def publish(project: Path, key_dir: Path, folders: Sequence[Path], client: ClientFiles) -> str:
    """Lay out the files and let update_versions sign and register them; returns its output. Raises GridError.

    A folder gets its name when it is complete, so a kill leaves nothing that update_versions would take for a
    version.
    """
    for folder in folders:
        _lay_out(folder, client)
    unsigned = [str(file.relative_to(project)) for folder in folders for file in _unsigned(folder, client)]
    if unsigned and not (key_dir / "code_sign_private").exists():
        raise GridError(
            f"{key_dir / 'code_sign_private'} is not on this machine, which is the safe way: sign these files where it "
            "is (bin/sign_executable FILE KEY > FILE.sig), put each .sig beside its file and run this again: "
            f"{' '.join(unsigned)}"
        )
    return run_tool(project, "update_versions", "--noconfirm")


def _lay_out(folder: Path, client: ClientFiles) -> None:
    growing = folder.with_name(f".{folder.name}")  # update_versions ignores names that begin with a dot
    target = folder if folder.exists() else growing
    for name, (content, mode) in client.contents.items():
        if files.read(target / name) != content:
            files.write(target / name, content, mode)
    if target is growing:
        with files.mapped(folder, "written"):
            growing.rename(folder)


def _unsigned(folder: Path, client: ClientFiles) -> list[Path]:
    paths = [folder / name for name in client.contents if name != "version.xml"]
    return [path for path in paths if not path.with_name(f"{path.name}.sig").is_file()]


def our_version_folders(apps: Path) -> list[Path]:
    """The folders that install made below apps/vcdl/, including unfinished ones, without versions for other systems."""
    if not (apps / APP).is_dir():
        return []
    return sorted(folder for folder in (apps / APP).glob(f"*/*{PLATFORM}*") if any(folder.glob(f"{_FILE_PREFIX}*")))


def others_unpublished(apps: Path, known: set[tuple[str, int, str, str]]) -> list[str]:
    """App versions of other apps that update_versions would publish as well.

    `known`: app, number, platform and plan class of every published version.
    """
    found = []
    for app in _subfolders(apps):
        for version in _subfolders(app):
            number = _number(version.name)
            for folder in _subfolders(version):
                platform, _, plan_class = folder.name.partition("__")
                if app.name != APP and number is not None and (app.name, number, platform, plan_class) not in known:
                    found.append(str(folder.relative_to(apps.parent)))
    return found


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    with files.mapped(folder, "read"):
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _number(name: str) -> int | None:
    """The number of a version's folder as update_versions reads it: 1.02 is 102, and 3 is 3."""
    major, dot, minor = name.partition(".")
    if not major.isdecimal() or (dot and not minor.isdecimal()):
        return None
    return 100 * int(major) + int(minor) if dot else int(major)
