"""Upgrade VCDL, and BOINC, while jobs run.

The new version is installed next to the old one, so that the upgrade can be undone. Unfinished tasks end with the
client with which they started, and their uploads are accepted. The daemons stop for a few seconds only.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vcdl.boinc.project import files
from vcdl.boinc.project.tools import last_words
from vcdl.boinc.server import system
from vcdl.boinc.server.backup import WORK, back_up
from vcdl.boinc.server.machine_steps import link_command
from vcdl.boinc.server.project_steps import close, doctor_step, install_step, restart_units
from vcdl.boinc.server.settings import ServerSettings, load_installed
from vcdl.boinc.server.steps import ServerStep, always, carry_out, file_step
from vcdl.errors import ServerError
from vcdl.files.children import python_command
from vcdl.files.extras import installed_extras

BEFORE = WORK / "before-upgrade"
"""The place of the backup that an upgrade makes first."""
_MARK = "vcdl-is-complete"
FOLLOW = r"""sed -i -E -e '/^\$config = get_config\(\);$/d' \
    -e 's/parse_config\((get_config\(\)|\$config) *, *"<([a-z_]+)>"\)/project_config_val("\2")/g' \
    -e 's/parse_bool\(\$config *, *"([a-z_]+)"\)/project_config_bool("\1")/g' project/*.inc user/index.php"""
"""Commands that adapt a project's own pages to BOINC after server release 1.6.2, which removed get_config.

BOINC's upgrade does not change those pages, and they call the removed function. So every page fails, including the
start page, at which clients attach, and upgrade_db.php.
"""


def upgrade(settings: ServerSettings, source: str, boinc: Path | None) -> Iterator[str]:
    """Upgrade VCDL, yielding lines while the caller iterates; switch back if the new version does not work.

    It is also undone if the doctor reports a failure afterwards.

    Args:
        settings: The server's settings.
        source: A wheel or a checkout of VCDL.
        boinc: A newer, built tree of BOINC's server; None: BOINC is not upgraded.

    Raises:
        ServerError: The upgrade failed, whether or not it was undone.
    """
    try:
        yield from carry_out(upgrade_steps(settings, source, boinc))
    except ServerError as error:
        now = load_installed(settings.name)
        # A switch writes the settings first, so they show whether there is anything to undo.
        if now.python == settings.python:
            raise
        yield f"the upgrade failed: {error}"
        yield "going back to the previous version"
        yield from carry_out(back_steps(now))
        kept = f"; BOINC and its database stay upgraded: the backup in {BEFORE} has the old ones" if boinc else ""
        raise ServerError(f"the upgrade failed and was undone{kept}. The cause: {error}") from None


def upgrade_steps(settings: ServerSettings, source: str, boinc: Path | None) -> Iterator[ServerStep]:
    """Yield the steps of an upgrade to the VCDL of a wheel or a checkout, and to a newer tree of BOINC."""
    folder = _folder(source)
    new = with_new_version(settings, folder / "bin" / "python", boinc or settings.boinc)
    yield ServerStep(f"VCDL in {folder}", (folder / _MARK).exists, lambda: _make(folder, source, settings.python))
    # Check this with the new version before the backup and the switch: a job that it cannot read would make no progress
    # afterwards.
    yield always("each open job opens with it", lambda: _check_jobs(new))
    yield always(f"backup in {BEFORE}", lambda: _back_up(settings))
    if boinc:
        yield always(f"BOINC of {boinc}, and its database", lambda: _upgrade_boinc(new))
    yield from switch_steps(new)


def with_new_version(settings: ServerSettings, python: Path, boinc: Path) -> ServerSettings:
    """Return the settings with another VCDL, and with the present one as the version before."""
    before = settings.python_before if settings.python == python else settings.python
    return replace(settings, python=python, python_before=before, boinc=boinc)


def back_steps(settings: ServerSettings) -> Iterator[ServerStep]:
    """Yield the steps back to the version before.

    Raises:
        ServerError: There is none.
    """
    before = settings.python_before
    if before is None or not before.exists():
        raise ServerError("there is no version to go back to: `vcdl server upgrade SOURCE` installs any version")
    yield from switch_steps(replace(settings, python=before, python_before=settings.python))


def switch_steps(settings: ServerSettings) -> Iterator[ServerStep]:
    """Yield the steps by which a project switches to another VCDL of this machine."""
    yield file_step("settings", settings.file, settings.to_json())
    yield always(f"command leads to {settings.python.parent}", lambda: link_command(settings.python))
    yield always("project stopped", lambda: _stop(settings))
    yield install_step(settings)
    yield always("daemons and service started again", lambda: restart_units(settings))
    yield doctor_step(settings)


def _folder(source: str) -> Path:
    """Return the folder in /opt for an unchanged source, so that a killed upgrade continues where it was."""
    path = Path(source)
    stamp = int(path.stat().st_mtime) if path.exists() else 0
    name = path.name.removesuffix(".whl").split("-py3")[0]
    return Path(f"/opt/{name if name.startswith('vcdl') else f'vcdl-{name}'}-{stamp}")


def _make(folder: Path, source: str, before: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    system.run(*python_command("venv", folder, python=getattr(sys, "_base_executable", None)))
    pip = python_command("pip", python=folder / "bin/python")
    # Link the packages, because most are the same in both versions: 13 s for 2.9 GB, instead of pip's four to ten
    # minutes (docs/measured/server.md).
    if link_packages(before.parent.parent, folder):
        system.run(*pip, "uninstall", "--quiet", "--yes", "vcdl")  # otherwise pip keeps one of the same number
    system.run(*pip, "install", "--quiet", f"{source}[{','.join(_extras())}]")
    system.run(folder / "bin/vcdl", "--version")
    # Write this file last: the step checks for it, and a folder without it is built from scratch.
    (folder / _MARK).touch()


def link_packages(before: Path, folder: Path) -> bool:
    """Link the packages of another virtual environment of the same Python into a new one.

    pip replaces files and never writes into them, so the environments stay independent.

    Returns:
        Whether that was possible.
    """
    for old in (before / "lib").glob("python*/site-packages"):
        new = folder / "lib" / old.parent.name / old.name
        if new.is_dir():
            whole = new.with_name("whole")
            try:
                # Copy under another name first, so that after a kill the folder is complete or missing.
                shutil.copytree(old, whole, symlinks=True, copy_function=os.link)
            except OSError:  # another disk
                shutil.rmtree(whole, ignore_errors=True)
                return False
            shutil.rmtree(new)
            whole.rename(new)
            return True
    return False


def _extras() -> list[str]:
    """Return the extras to install: those that this VCDL has, as pip may have no packages to reuse, and `server`."""
    return sorted({"server", *installed_extras()})


def _check_jobs(new: ServerSettings) -> None:
    """Check that the new version can read the open jobs.

    Raises:
        ServerError: It cannot; nothing has been changed yet.
    """
    for prepared in sorted((new.project / "vcdl/runs").glob("*/prepared.json")):
        run = prepared.parent
        if not (run / "summary.json").exists():
            system.run(*python_command("vcdl", "status", run, "--json", python=new.python), user=new.user)


def _back_up(settings: ServerSettings) -> None:
    for _ in back_up(settings, str(BEFORE)):
        pass


def _stop(settings: ServerSettings) -> None:
    system.run("systemctl", "stop", f"{settings.name}.service")


def _upgrade_boinc(settings: ServerSettings) -> None:
    """Run BOINC's two upgrade programs, and answer their questions with yes."""
    _stop(settings)
    tools = settings.boinc / "tools"
    system.run("./upgrade", settings.project, user=settings.user, cwd=tools, stdin="y\n")
    # Adapt pages after the files and before the database: upgrade_db.php itself includes the pages that call removed
    # functions.
    if "function parse_config" not in (settings.project / "html/inc/util_basic.inc").read_text():
        system.run("sh", "-c", FOLLOW, user=settings.user, cwd=settings.project / "html")
    ops = settings.project / "html/ops"
    said = system.run("php", "upgrade_db.php", user=settings.user, cwd=ops, stdin="y\n")
    newest = max(map(int, re.findall(r"array\((\d+), *\"update_", (ops / "db_update.php").read_text())), default=0)
    if int(files.read(settings.project / "db_revision") or 0) < newest:  # it ends with 0 when it dies
        raise ServerError(f"BOINC's upgrade_db.php did not reach {newest}: {last_words(said)}")
    # BOINC's upgrade writes keys and config.xml with modes of its own.
    close(settings)
