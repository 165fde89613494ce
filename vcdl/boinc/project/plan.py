"""Plan an install: determine all changes to a project before anything is changed."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from vcdl.boinc.grid.boinc_key import BoincKey
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.environment import PYTHON_VARIABLE, environment_file, environment_text
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.boinc.project import files, rows
from vcdl.boinc.project.app_version import (
    ClientFiles,
    Content,
    PublishedVersion,
    Variant,
    number_for,
    others_unpublished,
    version_folder,
)
from vcdl.boinc.project.container import collect_files, containers
from vcdl.boinc.project.edited_files import EDITED, SERVICE, Fragment
from vcdl.boinc.project.install_options import InstallOptions, service_path
from vcdl.boinc.project.pages import pages
from vcdl.boinc.project.record import Edit, Record
from vcdl.boinc.project.server_config import ServerConfig
from vcdl.boinc.runtime.published import runtime_folder, runtime_path, runtimes_to_publish, unwanted_runtimes
from vcdl.errors import GridError, split_password
from vcdl.stores.settings import PASSWORD_VARIABLE, URL_VARIABLE, StoreSettings

_PROGRAMS = ("create_work", "script_validator", "sign_executable", "xadd", "update_versions", "feeder", "transitioner")
_KEYS = ("upload_private", "upload_public", "code_sign_public")
_CERTIFICATES = (b"<dont_generate_upload_certificates>0<", b"<ignore_upload_certificates>0<")


@dataclass(frozen=True)
class NewFile:
    """A file that install must write, with its content and mode."""

    path: Path
    content: Content
    mode: int | None
    """The file's mode; None: unchanged, and 644 for a new file."""

    @property
    def is_secret(self) -> bool:
        return self.mode == files.SECRET_MODE


@dataclass(frozen=True)
class Versions:
    """The app versions of an install: which to publish, to deprecate and to offer again."""

    number: int
    unpublished: dict[Path, Variant]
    """Versions that are not in the database, by folder."""
    published: dict[Path, Variant]
    """Versions that are in the database, by folder."""
    to_deprecate: tuple[PublishedVersion, ...]
    to_offer: tuple[PublishedVersion, ...]
    """Versions that are published but deprecated, and are to be offered again."""


@dataclass(frozen=True)
class InstallPlan:
    """All changes of an install, determined before anything is changed."""

    project: BoincProject
    config: ServerConfig
    threads: int
    record: Record
    edits: tuple[Edit, ...]
    new_files: tuple[NewFile, ...]
    """Files that are missing or differ."""
    client: ClientFiles
    app: rows.AppRow | None
    not_kept: tuple[Path, ...]
    """Files of runtimes and containers in the project that are no longer used, and are deleted."""
    versions: Versions

    @property
    def edited(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.now != edit.after)

    @property
    def app_is_set(self) -> bool:
        return self.app is not None and self.app.settings == rows.APP_SETTINGS

    @property
    def changes_nothing(self) -> bool:
        versions = self.versions
        due = (versions.unpublished, versions.to_deprecate, versions.to_offer)
        work = (self.edited, self.new_files, self.not_kept, *due)
        return self.app_is_set and not any(work)


def password_from_environment(store_url: str, environment: Mapping[str, str]) -> str:
    """Return the store's password from the environment (VCDL_STORE_PASSWORD), or "" if the URL has one itself.

    Raises:
        StoreError: The URL is wrong.
    """
    StoreSettings.parse(store_url)
    return "" if split_password(store_url)[1] else environment.get(PASSWORD_VARIABLE, "")


def plan_install(project: BoincProject, database: BoincDatabase, options: InstallOptions) -> InstallPlan:
    """Determine all changes of an install, from the project's state and the operator's choices. Nothing is written.

    Raises:
        GridError: VCDL cannot be installed in the project.
    """
    config = ServerConfig.at(project.path)
    _check_project(project, config)
    record = Record.of(project.path)
    threads = options.threads or record.threads or 1
    service = service_command(config, options.service_port)
    # Generate the key now: its public half is in the client, whose name the plan contains. A dry run discards it.
    key = WeightsKey.of(project) or WeightsKey.generate()
    kept = collect_files(project.path, options.containers, options.without_containers)
    client = _client(project, options, key, kept)
    app = rows.app_row(database)
    published = [version for version in rows.published_versions(database, app) if version.is_ours] if app else []
    versions = _versions(project, client, threads, published, BoincKey.read(config.key_dir / "code_sign_public"))
    ours = (*_our_files(project, config, options, key, client), *(NewFile(path, kept[path], None) for path in kept))
    plan = InstallPlan(
        project=project,
        config=config,
        threads=threads,
        record=record,
        edits=tuple(record.plan(project.path / name, Fragment.load_shipped(name, threads, service)) for name in EDITED),
        new_files=tuple(filter(_differs, (*ours, *_missing_client_files(project, client, versions)))),
        client=client,
        app=app,
        not_kept=(*unwanted_runtimes(project.path, client.runtimes), *_dropped_wrappers(project, kept)),
        versions=versions,
    )
    if not options.force:
        _check_certificates(plan, database)
    if versions.unpublished:
        _check_others(project, database)
    return plan


def _versions(
    project: BoincProject,
    client: ClientFiles,
    threads: int,
    published: Sequence[PublishedVersion],
    key: BoincKey | None,
) -> Versions:
    apps = project.path / "apps"
    number = number_for(apps, client, published, key)
    variants = {variant.key: variant for variant in client.variants(threads)}
    current = {each.key: each for each in published if each.number == number and each.key in variants}
    return Versions(
        number=number,
        unpublished={version_folder(apps, number, each): each for k, each in variants.items() if k not in current},
        published={version_folder(apps, number, each): each for k, each in variants.items() if k in current},
        # Deprecate all older numbers, and kinds that are no longer offered: the scheduler may send any version that is
        # not deprecated.
        to_deprecate=tuple(each for each in published if not each.deprecated and each not in current.values()),
        to_offer=tuple(each for each in current.values() if each.deprecated),
    )


def service_command(config: ServerConfig, port: int | None) -> str:
    """Return the command of the daemon that serves the job pages.

    Args:
        config: The project's settings.
        port: The port to serve at; None: as installed before; 0: no daemon, for which "" is returned.
    """
    if port is None:
        return next((daemon.command for daemon in config.daemons if daemon.program == SERVICE), "")
    address = urlsplit(config.master_url)
    tls = " --behind-tls" if address.scheme == "https" else ""
    return (
        f"{SERVICE} --port {port} --path {service_path(config.master_url)} --host-name {address.hostname}{tls}"
        if port
        else ""
    )


def _check_project(project: BoincProject, config: ServerConfig) -> None:
    project.check_user()
    missing = [name for name in _PROGRAMS if not os.access(project.bin / name, os.X_OK)]
    if missing:
        raise GridError(f"bin/ lacks {', '.join(missing)}: bring the project up to date with BOINC's tools/upgrade")
    for key in _KEYS:
        if not (config.key_dir / key).is_file():
            raise GridError(f"{config.key_dir / key} is missing: no upload or client file could be trusted; restore it")


def _check_certificates(plan: InstallPlan, database: BoincDatabase) -> None:
    config = next(edit for edit in plan.edits if edit.path.name == "config.xml")
    # If certificates are required already, every running task has one.
    if all(setting in (config.now or b"") for setting in _CERTIFICATES):
        return
    if count := rows.results_without_certificate(database):
        raise GridError(
            f"{count} tasks of other apps were made while upload certificates were off, and their uploads would be "
            "refused: let them end first, or lose them with --force"
        )


def _check_others(project: BoincProject, database: BoincDatabase) -> None:
    if others := others_unpublished(project.path / "apps", rows.published_by_anyone(database)):
        raise GridError(
            f"{', '.join(others)} would be published as well: run bin/update_versions for them first, "
            "or move them out of apps/"
        )


def _client(project: BoincProject, options: InstallOptions, key: WeightsKey, kept: Mapping[Path, bytes]) -> ClientFiles:
    """Return the client's files with the kept and the given runtimes and containers.

    Raises:
        GridError: A runtime or a container is unusable.
    """
    runtimes = runtimes_to_publish(project.path, options.runtimes, options.without_runtimes)
    made = containers(kept, [runtime.platform for runtime in runtimes if not runtime.manifest.gpu])
    built = ClientFiles.build(key.public.to_json())
    return replace(built, runtimes=runtimes, containers=made, project_url=project.master_url)


def _dropped_wrappers(project: BoincProject, kept: Mapping[Path, bytes]) -> list[Path]:
    """Return the wrappers of an earlier install that are no longer used.

    One of them may be the wrapper for Windows, which install kept before December 2026.
    """
    there = [path for path in runtime_folder(project.path).glob("*") if path.suffix != ".tar"]
    return sorted(path for path in there if path not in kept)


def _our_files(
    project: BoincProject, config: ServerConfig, options: InstallOptions, key: WeightsKey, client: ClientFiles
) -> Iterator[NewFile]:
    for launcher in files.launchers():
        yield NewFile(project.bin / launcher.name, launcher.read_bytes(), files.PROGRAM_MODE)
    for path, content in pages(project.path, config.settings.get("long_name", "")):
        yield NewFile(path, content, files.FILE_MODE)
    if project.upload_dir.is_dir():
        yield NewFile(project.upload_mark, b"This is the folder that vcdl project install has seen.\n", files.FILE_MODE)
    yield NewFile(WeightsKey.file(project.path), key.to_pem(), files.SECRET_MODE)
    for runtime in client.runtimes:
        yield NewFile(runtime_path(project.path, runtime), runtime, files.FILE_MODE)
    path = environment_file(project.path)
    wanted = {PYTHON_VARIABLE: str(options.python)}
    # None keeps the store of an earlier install; "" removes both variables.
    if options.store_url is not None:
        wanted |= {URL_VARIABLE: options.store_url, PASSWORD_VARIABLE: options.store_password}
    text = environment_text(files.read(path), wanted)
    yield NewFile(path, text, files.SECRET_MODE)


def _missing_client_files(project: BoincProject, client: ClientFiles, versions: Versions) -> Iterator[NewFile]:
    """Yield the client files of published versions that are missing: a client that gets 404 gives up for good."""
    downloads: dict[str, Content] = {}
    for folder, variant in versions.published.items():
        for name, (content, mode) in client.contents_of(variant).items():
            yield NewFile(folder / name, content, mode)
            if name != "version.xml":
                downloads[name] = content
    for name, content in downloads.items():
        yield NewFile(project.download_dir / name, content, None)


def _differs(file: NewFile) -> bool:
    if not files.holds(file.path, file.content):
        return True
    if file.mode is None:
        return False
    mode = file.path.stat().st_mode
    # Compare only executable bits and secrecy: an operator may close files to others, or open them to the group.
    return (mode ^ file.mode) & 0o111 != 0 or (file.is_secret and mode & 0o077 != 0)
