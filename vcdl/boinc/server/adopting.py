"""Write the settings of a project that `vcdl server install` did not make, so that it can be backed up and restored."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project import files
from vcdl.boinc.server.settings import ServerSettings, settings_file
from vcdl.errors import ServerError


def read_settings(project_dir: Path, email: str, boinc: Path, tls: str, backup_for: str = "") -> ServerSettings:
    """Derive a server's settings from a project's config.xml, and check that a restore would rebuild the same project.

    Args:
        project_dir: The project's folder.
        email: Address of the operator.
        boinc: Folder of BOINC's server, built.
        tls: `CERTIFICATE,KEY` of a project that is reached by https, or `letsencrypt`. BOINC stores neither.
        backup_for: Comma-separated recipients of age or gpg; empty: backups are not encrypted.

    Raises:
        ServerError, GridError: The settings are incomplete, or config.xml cannot be read.
    """
    project = BoincProject.at(project_dir)
    url = urlsplit(project.master_url)
    if url.scheme == "https" and not tls:
        raise ServerError(f"{project.master_url} is reached by TLS: say how with --tls letsencrypt or CERTIFICATE,KEY")
    settings = ServerSettings(
        name=project.path.name,
        host=url.hostname or "",
        email=email,
        boinc=boinc,
        tls=tls if url.scheme == "https" else "",
        user=project.path.owner(),
        backup_for=backup_for,
        python=Path(sys.executable),
    )
    settings.check()
    # A restore creates the project from these settings. If they did not describe it, it would be restored to another
    # place.
    for what, there, wanted in (
        ("its folder", project.path, settings.project),
        ("its address", project.master_url.rstrip("/"), settings.url.rstrip("/")),
        ("its database", f"{project.db_name} at {project.db_host}", f"{settings.name} at localhost"),
    ):
        if there != wanted:
            raise ServerError(
                f"{what} is {there}, and a restore would make {wanted}: such a project cannot be adopted. "
                "Back up its folder, keys and database with other tools"
            )
    return settings


def adopt(settings: ServerSettings) -> str:
    """Write a project's settings to /etc/vcdl, and return a message about that.

    Raises:
        ServerError: The project has settings already.
    """
    path = settings_file(settings.name)
    if files.read(path) is not None:
        raise ServerError(f"{path} exists: the project is adopted already, and `vcdl server backup` works")
    files.write(path, settings.to_json())
    return f"{settings.project} is adopted, with settings in {path}: `vcdl server backup --to PLACE` backs it up"
