"""Folders that two users share: the project's, and the web server's, which runs the scheduler and takes uploads."""

import grp
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from vcdl.project.doctor.finding import Finding, failed, ok, warning
from vcdl.project.doctor.patient import Patient

_WEB_USERS = ("www-data", "apache", "http", "nginx")
_GIVEN_BY_CONFIG = "httpd_user"


def folder_rights(patient: Patient) -> Iterator[Finding]:
    """Without write access the scheduler answers "can't open log file", and uploads fail on the clients."""
    web_user = _web_user(patient)
    for folder in (patient.project.upload_dir, patient.project.log_dir):
        shown = f"{patient.shown(folder)}/"
        if not folder.is_dir():
            yield failed(
                "folder rights", f"{shown} is missing", f"mkdir {folder}, with the rights that docs/operator.md names"
            )
        elif web_user is None:
            yield warning(
                "folder rights",
                f"no user of a web server is known, {shown} was not checked",
                "set <httpd_user> in config.xml",
            )
        elif not _may_write(folder, web_user):
            yield failed(
                "folder rights",
                f"the web server ({web_user.pw_name}) may not write in {shown}",
                f"chgrp {grp.getgrgid(web_user.pw_gid).gr_name} {folder} && chmod 2775 {folder}",
            )
        else:
            yield ok("folder rights", f"{web_user.pw_name} may write in {shown}")


def downloads_readable(patient: Patient) -> Iterator[Finding]:
    """The web server must come through every folder down to download/."""
    web_user = _web_user(patient)
    if web_user is None:
        return
    for folder in (*reversed(patient.project.download_dir.parents), patient.project.download_dir):
        if folder.is_dir() and not _has(folder, web_user, stat.S_IXUSR):
            yield failed(
                "downloads readable",
                f"the web server ({web_user.pw_name}) may not enter {folder}",
                f"chmod o+x {folder}",
            )
            return
    yield ok("downloads readable", f"{web_user.pw_name} comes down to {patient.shown(patient.project.download_dir)}/")


def stop_files(patient: Patient) -> Iterator[Finding]:
    """bin/stop leaves them, and bin/start removes them."""
    for name, meaning in (("stop_daemons", "daemons end as soon as they start"), ("stop_sched", "clients get no work")):
        if (patient.path / name).exists():
            yield failed("stop files", f"{name} is there: {meaning}", "bin/start")
            return
    yield ok("stop files", "none")


def _web_user(patient: Patient) -> pwd.struct_passwd | None:
    given = patient.config.settings.get(_GIVEN_BY_CONFIG)
    for name in (given,) if given else _WEB_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _may_write(folder: Path, user: pwd.struct_passwd) -> bool:
    return _has(folder, user, stat.S_IWUSR) and _has(folder, user, stat.S_IXUSR)


def _has(folder: Path, user: pwd.struct_passwd, right: int) -> bool:
    """A right, given as the owner's bit."""
    status = folder.stat()
    if status.st_uid == user.pw_uid:
        return bool(status.st_mode & right)
    groups = {user.pw_gid, *(group.gr_gid for group in grp.getgrall() if user.pw_name in group.gr_mem)}
    if status.st_gid in groups:
        return bool(status.st_mode & right >> 3)
    return bool(status.st_mode & right >> 6)


CHECKS = (folder_rights, downloads_readable, stop_files)
