"""Build and publish the app version below apps/vcdl/.

BOINC's update_versions signs and registers it; its files' names contain a digest of their content.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.grid.boinc_key import BoincKey
from vcdl.boinc.grid.project_folder import APP, GPU_CLASS
from vcdl.boinc.project import files
from vcdl.boinc.project.container import CONTAINER_PLATFORMS, Container
from vcdl.boinc.project.edited_files import CONTAINER_CLASS, MT_CLASS
from vcdl.boinc.project.tools import run_tool
from vcdl.boinc.runtime.archive import RuntimeFile
from vcdl.boinc.runtime.platforms import LINUX, PLATFORMS
from vcdl.errors import GridError
from vcdl.files.shipped import shipped_folder

RUNTIME_PREFIX = "vcdl_runtime_"
_FIRST_NUMBER = 100
"""Number of the first version, because BOINC shows it divided by 100: 1.00."""
_FILE_PREFIX = "vcdl_client_"
_API_VERSION = "7.9.0"
"""The API version of our programs. Without it, BOINC's client would use shared memory, which our programs lack."""

Content = bytes | RuntimeFile
"""Content of a file to publish: its bytes, or the archive of a runtime, which is copied."""


@dataclass(frozen=True)
class Variant:
    """An app version to offer, for the hosts of one platform and plan class, with its runtime and container."""

    platform: str
    """BOINC's name of the platform."""
    plan_class: str = ""
    runtime: RuntimeFile | None = None
    container: Container | None = None
    """The container that runs the client; None: it runs on the machine itself."""

    @property
    def key(self) -> tuple[str, str]:
        """BOINC's platform and the plan class, as the database has them."""
        return self.platform, self.plan_class

    @property
    def folder_name(self) -> str:
        return self.platform + (f"__{self.plan_class}" if self.plan_class else "")


@dataclass(frozen=True)
class ClientFiles:
    """The programs that volunteers' computers get: launcher, client, and runtimes and containers to choose from."""

    launcher: bytes
    zipapp: bytes
    runtimes: tuple[RuntimeFile, ...] = ()
    containers: tuple[Container, ...] = ()
    project_url: str = ""
    """Address of the project, from which BOINC's client names the folder that containers mount."""

    @classmethod
    def build(cls, project_key: str = "") -> "ClientFiles":
        """Build launcher and client from this installation of VCDL, without runtimes and containers.

        Args:
            project_key: The public key of the project's weights, as JSON.
        """
        from vcdl.boinc.project.client_build import build_client

        with tempfile.TemporaryDirectory(prefix="vcdl-client-") as folder:
            path = Path(folder) / "vcdl_client.pyz"
            build_client(path, project_key)
            return cls((shipped_folder("wrappers") / "linux" / "vcdl_client").read_bytes(), path.read_bytes())

    @property
    def name(self) -> str:
        """Name of the main program, with a digest of everything that defines the version; other names begin with it."""
        # Put a digest of everything that defines the version into the names: BOINC never replaces a published file, so
        # any change needs new names. Runtimes have names of their own; otherwise hosts would fetch 134 MB with each new
        # client.
        digest = hashlib.sha256()
        # Hash each part on its own, so that bytes cannot move from one part to the next without changing the name.
        for part in (_version_xml([_File("")]).encode(), self.launcher, self.zipapp):
            digest.update(hashlib.sha256(part).digest())
        for container in self.containers:
            for part in (container.wrapper, *container.description_files(self.project_url).values()):
                digest.update(hashlib.sha256(part).digest())
        for runtime in self.runtimes:
            digest.update(bytes.fromhex(runtime.sha256))
        return f"{_FILE_PREFIX}{digest.hexdigest()[:12]}"

    def variants(self, threads: int) -> tuple[Variant, ...]:
        """Return the app versions to offer.

        One for Linux on x86-64, and one for each other platform with a runtime or a container. A CPU task with one
        thread needs no plan class. The scheduler prefers the kind with more threads, so only one is offered. Hosts that
        get a runtime may have no Python, so they need a runtime for GPU tasks, too.
        """
        plan_class = MT_CLASS if threads > 1 else ""
        runtimes = {(runtime.platform, runtime.manifest.gpu): runtime for runtime in self.runtimes}
        found = []
        for platform in PLATFORMS:
            of_cpu, of_gpu = (runtimes.get((platform, gpu)) for gpu in (False, True))
            if of_cpu is not None or platform == LINUX:
                found.append(Variant(platform.boinc, plan_class, of_cpu))
            # Without a runtime, hosts use their own Python, which may have a GPU's backend installed.
            if of_gpu is not None or (platform == LINUX and of_cpu is None):
                found.append(Variant(platform.boinc, GPU_CLASS, of_gpu))
        for each in self.containers:
            found.append(Variant(each.boinc_platform, CONTAINER_CLASS, runtimes[each.inside, False], each))
        return tuple(found)

    @property
    def contents(self) -> dict[str, tuple[bytes, int]]:
        """Content of the files for Linux without a runtime, by name."""
        contents = self.contents_of(Variant(LINUX.boinc))
        return {name: (content, mode) for name, (content, mode) in contents.items() if isinstance(content, bytes)}

    def contents_of(self, variant: Variant) -> dict[str, tuple[Content, int]]:
        """Return content and mode of a variant's files, by physical name."""
        found: dict[str, tuple[Content, int]]
        found = {self.name: (self.launcher, files.PROGRAM_MODE), f"{self.name}.pyz": (self.zipapp, files.FILE_MODE)}
        names = [_File(self.name), _File(f"{self.name}.pyz", _ZIPAPP)]
        if variant.container is not None:
            main = f"{self.name}_docker{'.exe' if 'windows' in variant.platform else ''}"
            names = [_File(main), _File(self.name, _LAUNCHER), *names[1:]]
            found[main] = (variant.container.wrapper, files.PROGRAM_MODE)
            for logical, content in variant.container.description_files(self.project_url).items():
                physical = f"{self.name}_{variant.container.inside.name}_{logical}"
                names.append(_File(physical, logical, is_copied=True))
                found[physical] = (content, files.FILE_MODE)
        if variant.runtime is not None:
            names.append(_File(variant.runtime.name, _RUNTIME))
            found[variant.runtime.name] = (variant.runtime, files.FILE_MODE)
        return {**found, "version.xml": (_version_xml(names).encode(), files.FILE_MODE)}


_ZIPAPP = "vcdl_client.pyz"
_RUNTIME = "vcdl_runtime.tar"
_LAUNCHER = "vcdl_client"


@dataclass(frozen=True)
class _File:
    """A file of an app version."""

    physical: str
    logical: str = ""
    is_copied: bool = False
    """Whether BOINC copies the file into a slot instead of linking it: docker_wrapper does not follow BOINC's links."""


def _version_xml(names: Sequence[_File]) -> str:
    """Return the version.xml for some files; the first is the main program."""
    lines = ["<version>"]
    for number, file in enumerate(names):
        lines += ["    <file>", f"        <physical_name>{file.physical}</physical_name>"]
        lines += [f"        <logical_name>{file.logical}</logical_name>"] if file.logical else []
        lines += ["        <copy_file/>"] if file.is_copied else []
        lines += ["        <main_program/>"] if number == 0 else []
        lines += ["    </file>"]
    return "\n".join([*lines, f"    <api_version>{_API_VERSION}</api_version>", "</version>", ""])


@dataclass(frozen=True)
class PublishedVersion:
    """A version of our app in the project's database."""

    id: int
    number: int
    platform: str
    plan_class: str
    deprecated: bool
    xml: str

    @property
    def is_ours(self) -> bool:
        """Whether install made this version, and not the operator."""
        return f">{_FILE_PREFIX}" in self.xml

    @property
    def key(self) -> tuple[str, str]:
        return self.platform, self.plan_class

    def is_of(self, client: ClientFiles) -> bool:
        """Return whether the version consists of this client's files."""
        return f">{client.name}.pyz<" in self.xml

    def is_signed(self, client: ClientFiles, key: BoincKey | None) -> bool:
        """Return whether clients that have this key accept the files of `client` from this version."""
        found = re.search(rf"<name>{client.name}\.pyz</name>.*?<file_signature>(.*?)</file_signature>", self.xml, re.S)
        return key is None or found is None or key.verifies(client.zipapp, found[1])

    @property
    def label(self) -> str:
        return f"{self.number / 100:.2f} {self.platform}{f' ({self.plan_class})' if self.plan_class else ''}"


def number_for(
    apps: Path, client: ClientFiles, published: Sequence[PublishedVersion], key: BoincKey | None = None
) -> int:
    """Return the version number of some client files: the one that they have, or the next free one.

    Args:
        apps: The folder of app versions.
        client: The files.
        published: The versions in the database.
        key: The signing key in use. A version that another key signed is not reused: its files keep their names, and a
            new version has their new signatures.
    """
    # Read numbers from disk and database: a killed install may leave a folder without a row, which update_versions
    # would publish.
    folders = {number: folder for folder in _subfolders(apps / APP) if (number := _number(folder.name)) is not None}
    ours = [version for version in published if version.is_of(client)]
    known = {version.number for version in ours}
    known |= {number for number, folder in folders.items() if any(folder.glob(f"*/{client.name}.pyz"))}
    # A new signing key needs a new number, because update_versions never signs a registered version again.
    known -= {version.number for version in ours if not version.is_signed(client, key)}
    return max(known) if known else max([*folders, *(version.number for version in published), _FIRST_NUMBER - 1]) + 1


def version_folder(apps: Path, number: int, variant: Variant) -> Path:
    """Return the folder of an app version."""
    return apps / APP / f"{number // 100}.{number % 100:02d}" / variant.folder_name


def publish(project: Path, key_dir: Path, folders: Mapping[Path, Variant], client: ClientFiles) -> str:
    """Write complete folders, have update_versions sign and register them, and return its output.

    Raises:
        GridError: A file cannot be written, or update_versions failed.
    """
    for folder, variant in folders.items():
        _lay_out(folder, client.contents_of(variant))
    unsigned = [
        str(file.relative_to(project))
        for folder, variant in folders.items()
        for file in _find_unsigned(folder, client.contents_of(variant))
    ]
    # Check this before update_versions, which would register a version without signatures that no client accepts.
    if unsigned and not (key_dir / "code_sign_private").exists():
        raise GridError(
            f"{key_dir / 'code_sign_private'} is not on this machine, which is the safe way: sign these files where it "
            "is (bin/sign_executable FILE KEY > FILE.sig), put each .sig next to its file and run this again: "
            f"{' '.join(unsigned)}"
        )
    return run_tool(project, "update_versions", "--noconfirm")


def _lay_out(folder: Path, contents: Mapping[str, tuple[Content, int]]) -> None:
    growing = folder.with_name(f".{folder.name}")  # update_versions ignores names that begin with a dot
    # Repair an existing folder in place: its name is published, and its files are compared one by one.
    target = folder if folder.exists() else growing
    for name, (content, mode) in contents.items():
        if not files.holds(target / name, content):
            files.write(target / name, content, mode)
    if target is growing:
        with files.map_os_errors(folder, "written"):
            growing.rename(folder)


def _find_unsigned(folder: Path, contents: Iterable[str]) -> list[Path]:
    paths = [folder / name for name in contents if name != "version.xml"]
    return [path for path in paths if not path.with_name(f"{path.name}.sig").is_file()]


def our_version_folders(apps: Path) -> list[Path]:
    """Return the folders that install made below apps/vcdl/, including unfinished ones."""
    if not (apps / APP).is_dir():
        return []
    platforms = tuple(f"*/*{platform}*" for platform in CONTAINER_PLATFORMS)
    found = {folder for pattern in platforms for folder in (apps / APP).glob(pattern)}
    return sorted(folder for folder in found if any(folder.glob(f"{_FILE_PREFIX}*")))


def published_names(folder: Path) -> list[str]:
    """Return the names in download/ of the files of an app version's folder."""
    return [file.name for prefix in (_FILE_PREFIX, RUNTIME_PREFIX) for file in folder.glob(f"{prefix}*")]


def others_unpublished(apps: Path, known: set[tuple[str, int, str, str]]) -> list[str]:
    """Return the app versions of other apps that update_versions would publish.

    Args:
        apps: The folder of app versions.
        known: App, number, platform and plan class of each published version.
    """
    found = []
    for app in _subfolders(apps):
        for version in _subfolders(app):
            number = _number(version.name)
            for folder in _subfolders(version):
                platform, _, plan_class = folder.name.partition("__")
                # update_versions publishes everything below apps/ that it does not know, where an operator may be
                # preparing another app.
                if app.name != APP and number is not None and (app.name, number, platform, plan_class) not in known:
                    found.append(str(folder.relative_to(apps.parent)))
    return found


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    with files.map_os_errors(folder, "read"):
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _number(name: str) -> int | None:
    """Return the number of a version's folder as update_versions reads it: 1.02 is 102, and 3 is 3."""
    major, dot, minor = name.partition(".")
    if not major.isdecimal() or (dot and not minor.isdecimal()):
        return None
    return 100 * int(major) + int(minor) if dot else int(major)
