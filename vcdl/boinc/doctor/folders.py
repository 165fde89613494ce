"""Check the permissions of the folders that the project's user and the web server's user share.

make_project sets them up so that both users reach them through the project's group.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.doctor.finding import Finding, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.project_folder import user_named

_WEB_USERS = ("www-data", "apache", "http", "nginx")
_GIVEN_BY_CONFIG = "httpd_user"
_READ = stat.S_IRUSR | stat.S_IXUSR
_WRITE = stat.S_IWUSR | stat.S_IXUSR
_PAGES = {"html/inc": _READ, "html/languages": _READ, "html/cache": _WRITE}
"""Folders of the pages, which make_project closes to all but the project's group."""


def check_page_rights(installation: Installation) -> Iterator[Finding]:
    """Check that the web server may read the folders of the pages.

    Otherwise every page answers HTTP 500, and no client can attach.
    """
    web_user = _web_user(installation)
    if web_user is None:
        return
    folders = {
        installation.path / name: rights for name, rights in _PAGES.items() if (installation.path / name).is_dir()
    }
    closed = [folder for folder, rights in folders.items() if not _has(folder, web_user, rights)]
    if closed:
        yield failed(
            f"{', '.join(map(installation.display_path, closed))} closed to the web server ({web_user.pw_name}): every "
            "page answers 500, and no client can attach",
            f"usermod -a -G {group_of(installation.path / 'config.xml')} {web_user.pw_name}, "
            "then restart the web server",
        )
    else:
        yield ok(f"{web_user.pw_name} may read what the pages need")


def check_folder_rights(installation: Installation) -> Iterator[Finding]:
    """Check the folders that the web server must write to.

    Without write access the scheduler answers "can't open log file", and uploads fail on the clients. Only upload/ must
    also have a group of the project's user. The log folder may have the web server's, as file_deleter deletes nothing
    there.
    """
    web_user = _web_user(installation)
    for folder in (installation.project.upload_dir, installation.project.log_dir):
        shown = f"{installation.display_path(folder)}/"
        if not folder.is_dir():
            yield failed(f"{shown} is missing", f"mkdir -m 2770 {folder}, then run the doctor again to check its group")
        elif web_user is None:
            yield warning(
                f"no user of a web server was found, so {shown} was not checked", "set <httpd_user> in config.xml"
            )
        elif not _has(folder, web_user, _WRITE):
            yield failed(
                f"the web server ({web_user.pw_name}) may not write in {shown}",
                _membership(installation, folder, web_user),
            )
        elif folder == installation.project.upload_dir and not _can_be_emptied(installation, folder):
            yield failed(
                f"{shown} has the group {group_of(folder)}, and the project's user is not in it: "
                "file_deleter cannot empty the folders that the web server makes in it",
                _membership(installation, folder, web_user),
            )
        else:
            yield ok(f"{web_user.pw_name} may write in {shown}")


def check_downloads_readable(installation: Installation) -> Iterator[Finding]:
    """Check that the web server can enter download/ and every folder above it."""
    web_user = _web_user(installation)
    if web_user is None:
        return
    # Go from the root down, so that the first closed folder is named: those below it cannot be checked.
    for folder in (*reversed(installation.project.download_dir.parents), installation.project.download_dir):
        if folder.is_dir() and not _has(folder, web_user, stat.S_IXUSR):
            yield failed(
                f"the web server ({web_user.pw_name}) may not enter {folder}",
                f"chmod a+x {folder}",  # o+x alone keeps out a member of the folder's group
            )
            return
    yield ok(f"{web_user.pw_name} can reach {installation.display_path(installation.project.download_dir)}/")


def check_upload_key(installation: Installation) -> Iterator[Finding]:
    """Check the key with which the scheduler signs tasks for one host (a second copy), as the web server's user."""
    web_user, key = _web_user(installation), installation.config.key_dir / "upload_private"
    if web_user is None or not key.is_file():
        return
    if all(_has(path, web_user, rights) for path, rights in ((key.parent, stat.S_IXUSR), (key, stat.S_IRUSR))):
        yield ok(f"{web_user.pw_name} may sign with {installation.display_path(key)}")
    else:
        group = group_of(installation.path / "config.xml")
        yield failed(
            f"the web server ({web_user.pw_name}) may not read {installation.display_path(key)}: the scheduler says "
            "\"can't "
            'read key"; a late subtask gets no second host, or one whose upload is refused ("missing signature")',
            f"chgrp {group} {key.parent} {key}; chmod g+x {key.parent}; chmod 640 {key}",
        )


def check_stop_files(installation: Installation) -> Iterator[Finding]:
    """Check for the files by which bin/stop keeps daemons and scheduler stopped; bin/start removes them."""
    for name, meaning in (("stop_daemons", "daemons end as soon as they start"), ("stop_sched", "clients get no work")):
        if (installation.path / name).exists():
            yield failed(f"{name} exists: {meaning}", "bin/start")
            return
    yield ok("none")


def _web_user(installation: Installation) -> pwd.struct_passwd | None:
    # Without the setting, take the first of the usual names that exists. A machine with several web servers needs the
    # setting.
    given = installation.config.settings.get(_GIVEN_BY_CONFIG)
    for name in (given,) if given else _WEB_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _can_be_emptied(installation: Installation, folder: Path) -> bool:
    """Return whether the project's user may delete files in folders that the web server creates in this one.

    New folders inherit the group of a set-group-ID folder.
    """
    status, uid = folder.stat(), (installation.path / "config.xml").stat().st_uid
    # Without the set-group-ID bit, the group of a new folder does not follow from the group of this one.
    if uid == 0 or not status.st_mode & stat.S_ISGID:
        return True
    try:
        owner = pwd.getpwuid(uid)
    except KeyError:
        return True
    return status.st_gid in os.getgrouplist(owner.pw_name, owner.pw_gid)


def _membership(installation: Installation, folder: Path, web_user: pwd.struct_passwd) -> str:
    group = group_of(installation.path / "config.xml")
    return (
        f"usermod -a -G {group} {web_user.pw_name}; chgrp -R {group} {folder}; chmod 2770 {folder}; "
        "then restart the web server"
    )


def group_of(path: Path) -> str:
    """Return the name of a file's group, or its number if it has none."""
    gid = path.stat().st_gid
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user_of(path: Path) -> str:
    """Return the name of a file's owner."""
    return user_named(path.stat().st_uid)


def _has(path: Path, user: pwd.struct_passwd, rights: int) -> bool:
    """Return whether the user has all of these permissions on a file; `rights` are the owner's mode bits."""
    status = path.stat()
    # Test one class of bits only, as the kernel does: an owner without a permission does not get it from the group.
    if status.st_uid == user.pw_uid:
        return not rights & ~status.st_mode
    # Read the group database. A running server still has the groups of its start, which cannot be read here.
    groups = {user.pw_gid, *(group.gr_gid for group in grp.getgrall() if user.pw_name in group.gr_mem)}
    if status.st_gid in groups:
        return not rights >> 3 & ~status.st_mode
    return not rights >> 6 & ~status.st_mode


CHECKS = (check_page_rights, check_folder_rights, check_downloads_readable, check_upload_key, check_stop_files)
