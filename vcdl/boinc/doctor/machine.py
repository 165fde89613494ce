"""Check the machine's name, its disks, and the user."""

import os
from collections.abc import Iterator

from vcdl.boinc.doctor.finding import Finding, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.disk_room import GO_ON_BYTES, free_by_folder, least_bytes
from vcdl.boinc.grid.project_folder import this_machine, user_named

_GIB = 1 << 30
_LITTLE_BYTES = 5 * _GIB
"""Free bytes below which the doctor warns: more than the limits of disk_room, so that there is time to free some."""


def check_user(installation: Installation) -> Iterator[Finding]:
    """Check the user: BOINC's programs and ours must run as the same user to read each other's files."""
    me = os.geteuid()
    owner = (installation.path / "config.xml").stat().st_uid
    wanted = installation.config.settings.get("project_user_name", "")
    if me != owner:
        mine = user_named(owner)
        yield failed(f"run as {user_named(me)}, and the project is {mine}'s", f"sudo -u {mine} vcdl project doctor …")
    elif wanted and wanted != user_named(me):
        cure = "correct <project_user_name> or the owner of the files"
        yield failed(f"config.xml wants {wanted}, this is {user_named(me)}", cure)
    else:
        yield ok(user_named(me))


def check_host_name(installation: Installation) -> Iterator[Finding]:
    """Check that <host> is this machine's short name; otherwise bin/start starts no daemon, and hardly reports it."""
    here, configured = this_machine(), installation.project.host
    if configured == here:
        yield ok(here)
    else:
        yield failed(
            f"config.xml has <host>{configured}</host>, and this machine is {here}: bin/start starts no daemon",
            f"in config.xml write <host>{here}</host>, and log_{here} in <log_dir>; mv log_{configured} log_{here}; "
            "then bin/stop; bin/start",
        )


def check_disk_space(installation: Installation) -> Iterator[Finding]:
    """Check the free space on the disks: a full disk stops the database, the daemons and uploads together."""
    least = least_bytes(installation.project)
    for folder, free in free_by_folder(installation.project).items():
        what = f"{free / _GIB:.1f} GiB free for {installation.display_path(folder)}"
        if free < least:
            cure = f"delete old jobs in vcdl/runs, logs in log_*/: it continues at {GO_ON_BYTES / _GIB:g} GiB free"
            yield failed(f"{what}: no new work is made", cure)
        elif free < _LITTLE_BYTES:
            yield warning(what, "free some space before it stops the jobs")
        else:
            yield ok(what)


CHECKS = (check_user, check_host_name, check_disk_space)
