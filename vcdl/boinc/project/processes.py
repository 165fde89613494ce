"""Find the running daemons of a project by the pid files that bin/start writes."""

from pathlib import Path

from vcdl.boinc.grid.database import open_project
from vcdl.boinc.grid.disk_room import free_by_folder, least_bytes, shortage
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project import files
from vcdl.boinc.project.edited_files import SERVICE
from vcdl.boinc.project.server_config import Daemon, ServerConfig
from vcdl.errors import GridError
from vcdl.errors.backoff import wait_until

_OURS = "vcdl_"
_ENDING_S = 90.0
"""Seconds that a daemon of ours may take to end, as script_validator completes up to a thousand checks."""
_REREAD = "reread_db"
_UNITS = Path("/etc/systemd/system")


def is_running(project: BoincProject, daemon: Daemon) -> bool:
    """Return whether the process in the daemon's pid file runs, and is that daemon.

    Raises:
        GridError: The pid file cannot be read.
    """
    try:
        pid = int(files.read(project.path / f"pid_{project.host}" / daemon.pid_file) or b"")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    # The pid file is missing or half written, or the process has ended.
    except (ValueError, OSError):
        return False
    # Compare the command line, because the id may belong to another program by now. Our launchers exec Python, whose
    # arguments name the module.
    names = {word.decode(errors="replace").rpartition("/")[2] for word in words}
    if daemon.program == SERVICE:
        return "serve" in names
    return bool(names & {daemon.program, f"vcdl.boinc.daemons.{daemon.program.removeprefix(_OURS)}"})


def down(project: BoincProject) -> list[str]:
    """Return the daemons of this machine that should run and do not.

    Raises:
        GridError: config.xml or a pid file cannot be read.
    """
    daemons = ServerConfig.at(project.path).daemons_here
    return [daemon.name for daemon in daemons if not daemon.disabled and not is_running(project, daemon)]


def troubles(project_dir: Path) -> list[str]:
    """Return the reasons why a project's jobs make no progress: daemons, disks, database. Empty if there are none.

    It is also empty if this user cannot read the project's configuration.
    """
    try:
        found = standstills(BoincProject.at(project_dir))
    except GridError:
        return []
    try:
        with open_project(project_dir) as (_, database):
            database.execute("SELECT 1")
    except GridError as error:
        found.append(f"{error}")
    return found


def standstills(project: BoincProject) -> list[str]:
    """Return the reasons why a project's jobs make no progress, without asking the database.

    Raises:
        GridError: The folder cannot be read.
    """
    dead, found = down(project), []
    if project.stop_daemons.exists():
        found.append(f"the project is stopped ({how_to_start(project)})")
    elif dead:
        found.append(f"{', '.join(dead)} not running ({how_to_start(project)})")
    least = least_bytes(project)
    return found + [shortage(folder, free) for folder, free in free_by_folder(project).items() if free < least]


def how_to_start(project: BoincProject) -> str:
    """Return the command that starts the daemons: systemctl for a unit of ours, else bin/start and cron."""
    unit = f"{project.path.name}.service"
    if (_UNITS / unit).is_file():  # by vcdl server install; runs bin/start every minute
        return f"as root: systemctl restart {unit}"
    return "bin/start; cron must call bin/start --cron"


def wait_for_our_daemons(project: BoincProject) -> list[str]:
    """Wait up to 90 s until our daemons have ended after bin/stop; return the names of those that still run.

    Raises:
        GridError: config.xml or a pid file cannot be read.
    """
    daemons = [daemon for daemon in ServerConfig.at(project.path).daemons if daemon.name.startswith(_OURS)]

    def running() -> list[str]:
        return [daemon.name for daemon in daemons if is_running(project, daemon)]

    # Wait only while the request to stop exists, because without it the daemons will not end.
    wait_until(lambda: not running() or not project.stop_daemons.exists(), _ENDING_S)
    return running()


def tell_feeder(project: BoincProject) -> None:
    """Have a running feeder read the app's tables again, by a file; a stopped one reads them when it starts.

    Raises:
        GridError: The request cannot be written.
    """
    path = project.path / _REREAD
    feeders = [daemon for daemon in ServerConfig.at(project.path).daemons if daemon.program == "feeder"]
    if any(is_running(project, feeder) for feeder in feeders):
        with files.map_os_errors(path, "written"):
            path.touch()
    else:
        files.delete(path)  # update_versions always makes it
