"""Remove a server from its machine, on request together with its project."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vcdl.boinc.server import system, texts
from vcdl.boinc.server.project_steps import stop_serving
from vcdl.boinc.server.settings import ETC, ServerSettings
from vcdl.boinc.server.steps import ServerStep


def removal_steps(settings: ServerSettings, *, delete_project: bool) -> Iterator[ServerStep]:
    """Yield the steps of a removal.

    Packages and VCDL's folders in /opt stay, as others may use them. The settings are deleted last, so that a killed
    removal can be repeated.
    """
    rotation = Path("/etc/logrotate.d") / settings.name
    site = Path("/etc/apache2/sites-enabled") / f"{settings.name}.conf"
    yield ServerStep("units stopped and removed", lambda: not _units(settings), lambda: _remove_units(settings))
    yield ServerStep("Apache no longer serves it", lambda: not site.exists(), lambda: stop_serving(settings))
    yield ServerStep("log rotation removed", lambda: not rotation.exists(), rotation.unlink)
    if delete_project:
        yield ServerStep(
            f"database and database user {settings.user} dropped",
            lambda: not _has_database(settings),
            lambda: _drop(settings),
        )
        yield ServerStep(
            f"{settings.project} deleted",
            lambda: not settings.project.exists(),
            lambda: shutil.rmtree(settings.project),
        )
    yield ServerStep(
        f"settings in {ETC} removed", lambda: not _list_settings_files(settings), lambda: _forget(settings)
    )


def _units(settings: ServerSettings) -> list[Path]:
    # List the units of every option, so that those of an earlier configuration are found too.
    every = texts.units(replace(settings, backup_to="any"), with_web=True)
    return [path for path in every if path.exists()]


def _remove_units(settings: ServerSettings) -> None:
    found = _units(settings)
    system.run("systemctl", "disable", "--quiet", "--now", *(path.name for path in found))
    for path in found:
        path.unlink()
    system.run("systemctl", "daemon-reload")


def _has_database(settings: ServerSettings) -> bool:
    asked = (
        f"SELECT 1 FROM information_schema.schemata WHERE schema_name = '{settings.name}' "
        f"UNION SELECT 1 FROM mysql.db WHERE User = '{settings.user}' AND Db = '{settings.name}'"
    )
    return bool(system.sql(asked).strip())


def _drop(settings: ServerSettings) -> None:
    """Drop the database, and its user unless another project of this machine uses it."""
    who = f"'{settings.user}'@localhost"
    system.sql(f"DROP DATABASE IF EXISTS `{settings.name}`; REVOKE ALL ON `{settings.name}`.* FROM {who};")
    others = system.sql(f"SELECT COUNT(*) FROM mysql.db WHERE User = '{settings.user}'").strip()
    if others == "0":
        system.sql(f"DROP USER {who}")


def _list_settings_files(settings: ServerSettings) -> list[Path]:
    return sorted(path for path in ETC.glob(f"{settings.name}.*") if path.name.partition(".")[0] == settings.name)


def _forget(settings: ServerSettings) -> None:
    # Delete the settings file last, because a repeated `uninstall` finds the project by it.
    for path in sorted(_list_settings_files(settings), key=lambda path: path == settings.file):
        path.unlink()
