"""Run commands on the machine, as root or as the project's user.

Secrets are passed through standard input only.
"""

import grp
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vcdl.boinc.project.tools import last_words
from vcdl.errors import ServerError

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S = 3600.0
"""Seconds after which a command is killed: long enough for a package installation from a slow mirror."""
_UMASK = 0o022
"""Umask of commands: all users can read the files that they create. Secrets get modes of their own."""


def run(
    *command: str | Path,
    user: str = "root",
    cwd: Path | None = None,
    stdin: str = "",
    more: Mapping[str, str] | None = None,
    fails: bool = False,
) -> str:
    """Run a command and return its output.

    Args:
        command: Program and arguments.
        user: The user that runs it.
        cwd: Its working directory.
        stdin: Its standard input.
        more: Further environment variables.
        fails: Whether it may fail; a failure then returns an empty output.

    Raises:
        ServerError: The command fails, and `fails` is false.
    """
    words = [str(word) for word in command]
    # Before the user exists, a check of something that belongs to the user must fail and not raise.
    if fails and not has_user(user):
        return ""
    who = user_of(user)
    try:
        done = subprocess.run(
            words, cwd=cwd or "/", input=stdin, capture_output=True, text=True, errors="replace", check=False,
            timeout=_TIMEOUT_S, umask=_UMASK, env={**environment(who), **(more or {})}, **identity(who),
        )  # fmt: skip
    except FileNotFoundError:
        if fails:
            return ""
        raise ServerError(f"{words[0]} is not on this machine: run `vcdl server install` first") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{words[0]} cannot be run: {error}") from None
    if done.returncode != 0:
        if fails:
            return ""
        raise ServerError(f"`{' '.join(words)}` failed ({done.returncode}): {last_words(done.stdout + done.stderr)}")
    return str(done.stdout)


def succeeds(*command: str | Path, user: str = "root", cwd: Path | None = None, stdin: str = "") -> bool:
    """Return whether a command succeeds; False if it does not exist."""
    try:
        run(*command, user=user, cwd=cwd, stdin=stdin)
    except ServerError:
        return False
    return True


def is_active(*units: str) -> bool:
    """Return whether systemd runs all of these units."""
    return succeeds("systemctl", "is-active", "--quiet", *units)


def sql(statements: str, database: str = "") -> str:
    """Run statements as MariaDB's root, and return a line for each row, with tabs between the columns.

    Raises:
        ServerError: A statement failed.
    """
    return run("mariadb", "--batch", "--skip-column-names", *([database] if database else []), stdin=statements)


def user_of(name: str) -> pwd.struct_passwd:
    """Return the passwd entry of a user.

    Raises:
        ServerError: There is no such user.
    """
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise ServerError(f"there is no user {name} on this machine: run `vcdl server install` first") from None


def has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def in_group(user: str, group: str) -> bool:
    try:
        return user in grp.getgrnam(group).gr_mem
    except KeyError:
        return False


def environment(who: pwd.struct_passwd) -> dict[str, str]:
    """Return the environment of a command: that of a login, plus this process' proxies and certificates."""
    kept = ("PIP_CERT", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")
    passed = {name: os.environ[name] for name in kept if name in os.environ}
    # Set these explicitly: sudo and cron pass on the caller's HOME, and a PATH without sbin.
    own = {"PATH": _PATH, "HOME": who.pw_dir, "USER": who.pw_name, "LOGNAME": who.pw_name}
    return {**passed, **own, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


def identity(who: pwd.struct_passwd) -> dict[str, Any]:
    """Return the arguments with which subprocess runs a command as another user; none for our own."""
    if who.pw_uid == os.geteuid():
        return {}
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": os.getgrouplist(who.pw_name, who.pw_gid)}


def own(path: Path, user: str, mode: int) -> None:
    """Set owner and mode of a file or folder."""
    who = user_of(user)
    os.chown(path, who.pw_uid, who.pw_gid)
    path.chmod(mode)


def is_private(path: Path) -> bool:
    """Return whether a file exists and only its owner can read it."""
    return path.is_file() and path.stat().st_mode & 0o077 == 0


def check_root() -> None:
    """Check that this process runs as root.

    Raises:
        ServerError: It does not.
    """
    if os.geteuid() != 0:
        raise ServerError("this changes the whole machine: run it as root")


def packages_missing(wanted: Sequence[str]) -> list[str]:
    """Return those of some Debian packages that are not installed; for `a|b`, either one is enough."""
    listed = run("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", fails=True)
    there = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [each for each in wanted if there.isdisjoint(each.split("|"))]
