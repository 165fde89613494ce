"""The steps of an installation on the machine: packages, user, MariaDB, Redis, the command `vcdl`, firewall."""

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.project import files
from vcdl.boinc.server import system, texts
from vcdl.boinc.server.settings import ServerSettings, is_address
from vcdl.boinc.server.steps import ServerStep, file_step
from vcdl.errors import ServerError

REDIS_FILE = Path("/etc/redis/vcdl.conf")
_HOSTS = Path("/etc/hosts")
"""It gets a line with the server's name, so that the doctor reaches this machine even before DNS leads to it."""
_REDIS_CONFIG = Path("/etc/redis/redis.conf")
_REDIS_INCLUDE = f"include {REDIS_FILE}\n"
_KEEP = "--force-confold"
"""Option with which dpkg keeps the operator's settings without asking."""
_FIREWALL_FILE = Path("/etc/vcdl/firewall.nft")
_FIREWALL_CONFIG = Path("/etc/nftables.conf")
_FIREWALL_INCLUDE = f'include "{_FIREWALL_FILE}"\n'


def machine_steps(settings: ServerSettings, *, with_web: bool) -> Iterator[ServerStep]:
    """Yield the steps that prepare the machine itself, in the order in which they must be carried out.

    They cover packages, the settings file, the command `vcdl`, the user, name resolution, MariaDB, and Redis and the
    firewall if the settings ask for them. Nothing is changed until a step's `make_so` is called.

    Args:
        settings: The server's settings.
        with_web: Whether to install the packages of the web service, too.
    """
    wanted = texts.packages(settings, with_web=with_web)
    yield ServerStep(
        f"packages: {' '.join(each.replace('|', ' or ') for each in wanted)}",
        lambda: not system.packages_missing(wanted),
        lambda: _install_packages(wanted),
    )
    yield file_step("settings", settings.file, settings.to_json())
    yield ServerStep(f"command {texts.COMMAND}", lambda: _leads_to_us(settings), lambda: link_command(settings.python))
    yield ServerStep(
        f"user {settings.user}, whose group the web server is in",
        lambda: _is_user(settings),
        lambda: _make_user(settings),
    )
    if not is_address(settings.host):
        line = f"127.0.0.1 {settings.host}\n"
        yield ServerStep(
            f"{settings.host} is this machine, for itself ({_HOSTS})",
            lambda: line in _HOSTS.read_text(),
            lambda: _add_host(line),
        )
    yield ServerStep("MariaDB runs", lambda: system.is_active("mariadb"), lambda: _start("mariadb"))
    yield ServerStep(
        f"database user {settings.user}, who may use the database {settings.name}",
        lambda: _has_grant(settings),
        lambda: _grant(settings),
    )
    if settings.redis:
        yield ServerStep("Redis runs, with a password and persistence", _is_redis_set, _set_redis)
    if settings.firewall:
        rules = texts.firewall(_ssh_port())
        yield ServerStep("firewall: ssh and the web", lambda: _has_firewall(rules), lambda: _set_firewall(rules))


def redis_password() -> str:
    """Return the password of the machine's Redis.

    Raises:
        GridError: Its file cannot be read.
    """
    lines = (files.read(REDIS_FILE) or b"").decode().splitlines()
    return next((line.split()[1] for line in lines if line.startswith("requirepass ")), "")


def link_command(python: Path) -> None:
    """Let /usr/local/bin/vcdl lead to the VCDL of a Python."""
    temporary = texts.COMMAND.with_name(f".vcdl.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    # Rename a new link over the old one, so that the command exists at every moment.
    temporary.symlink_to(python.parent / "vcdl")
    temporary.replace(texts.COMMAND)


def check_python(python: Path) -> None:
    """Check that other users, such as the project's, can run this Python.

    Raises:
        ServerError: They cannot.
    """
    # Check all folders above it: the project's user cannot enter a virtual environment below /root.
    for folder in (python.parent, *python.parent.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            raise ServerError(
                f"{sys.prefix}: other users may not enter {folder}, and the project's user runs the VCDL in it: make "
                "the virtual environment in /opt/vcdl"
            )


def _add_host(line: str) -> None:
    """Add a line to the hosts file, writing in place: in a container that file cannot be replaced."""
    with files.map_os_errors(_HOSTS, "written"), _HOSTS.open("a+") as file:
        file.seek(0)
        file.write(line if file.read().endswith("\n") else f"\n{line}")


def _install_packages(wanted: list[str]) -> None:
    system.run("dpkg", _KEEP, "--configure", "--pending")  # after a kill
    system.run("apt-get", "update", "--quiet")
    names = []
    for each in system.packages_missing(wanted):
        # Releases name some libraries differently: install the first name that this release has. If it has none, give
        # apt the last name, so that its error message contains it.
        known = [name for name in each.split("|") if system.succeeds("apt-cache", "show", name)]
        names += known[:1] or [each.split("|")[-1]]
    options = ("-o", "DPkg::Lock::Timeout=600", "-o", f"Dpkg::Options::={_KEEP}")  # apt may be busy with an upgrade
    system.run("apt-get", *options, "install", "--quiet", "--yes", "--no-install-recommends", *names)


def _leads_to_us(settings: ServerSettings) -> bool:
    return texts.COMMAND.is_symlink() and texts.COMMAND.readlink() == settings.python.parent / "vcdl"


def _is_user(settings: ServerSettings) -> bool:
    if not system.has_user(settings.user):
        return False
    home = Path("/home") / settings.user
    # Apache must pass through the home folder to the project, and write uploads by the group.
    return system.in_group(texts.WEB_USER, settings.user) and home.stat().st_mode & 0o111 == 0o111


def _make_user(settings: ServerSettings) -> None:
    home = Path("/home") / settings.user
    if not system.has_user(settings.user):
        system.run(
            "useradd", "--create-home", "--user-group", "--shell", "/bin/bash", "--home-dir", home, settings.user
        )
    home.chmod(home.stat().st_mode | 0o111)
    system.run("usermod", "--append", "--groups", settings.user, texts.WEB_USER)
    if system.is_active("apache2"):
        system.run("systemctl", "restart", "apache2")  # it reads its groups when it starts


def _start(unit: str) -> None:
    system.run("systemctl", "enable", "--quiet", "--now", unit)


def _has_grant(settings: ServerSettings) -> bool:
    asked = f"SELECT 1 FROM mysql.db WHERE User = '{settings.user}' AND Host = 'localhost' AND Db = '{settings.name}'"
    return system.run("mariadb", "--batch", "--skip-column-names", stdin=asked, fails=True).strip() == "1"


def _grant(settings: ServerSettings) -> None:
    """Grant the project's user access without a password: MariaDB learns the user from the kernel.

    The web server's user logs in with the password that is set later.
    """
    who = f"'{settings.user}'@localhost"
    system.sql(
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED VIA unix_socket; GRANT ALL ON `{settings.name}`.* TO {who};"
    )


def _is_redis_set() -> bool:
    """Return whether Redis requires the password; it is asked, because its file may not have been loaded yet."""
    included = _REDIS_CONFIG.is_file() and _REDIS_INCLUDE in _REDIS_CONFIG.read_text()
    if not included or not (password := redis_password()):
        return False
    refused = "NOAUTH" in system.run("redis-cli", "ping", fails=True)
    said = system.run("redis-cli", "ping", more={"REDISCLI_AUTH": password}, fails=True)
    return refused and said.strip() == "PONG"


def _set_redis() -> None:
    # Keep our settings in a file of their own, so that an upgrade of the package can replace Redis' file.
    if _REDIS_INCLUDE not in (text := _REDIS_CONFIG.read_text()):
        _REDIS_CONFIG.write_text(f"{text.rstrip()}\n{_REDIS_INCLUDE}")
    # Keep an existing password, because open jobs and vcdl/environment contain it.
    set_redis_password(redis_password() or secrets.token_urlsafe(24))


def set_redis_password(password: str) -> None:
    """Write Redis' settings with this password, and restart Redis.

    Raises:
        ServerError: Redis does not accept it.
    """
    files.write(REDIS_FILE, texts.redis_settings(password).encode(), files.SECRET_MODE)
    system.own(REDIS_FILE, "redis", files.SECRET_MODE)
    system.run("systemctl", "enable", "--quiet", "redis-server")
    system.run("systemctl", "restart", "redis-server")


def _ssh_port() -> int:
    """Return the port of this ssh session, which the firewall must leave open."""
    return int((os.environ.get("SSH_CONNECTION") or "0 0 0 22").split()[-1])


def _has_firewall(rules: str) -> bool:
    included = _FIREWALL_CONFIG.is_file() and _FIREWALL_INCLUDE in _FIREWALL_CONFIG.read_text()
    return (
        included
        and files.read(_FIREWALL_FILE) == rules.encode()
        and system.succeeds("nft", "list", "table", "inet", "vcdl")
    )


def _set_firewall(rules: str) -> None:
    # Load the rules before storing them, so that wrong ones fail here and not at the next boot.
    system.run("nft", "--file", "-", stdin=rules)
    text = _FIREWALL_CONFIG.read_text() if _FIREWALL_CONFIG.is_file() else "#!/usr/sbin/nft -f\n"
    if _FIREWALL_INCLUDE not in text:
        _FIREWALL_CONFIG.write_text(f"{text.rstrip()}\n{_FIREWALL_INCLUDE}")
    system.run("systemctl", "enable", "--quiet", "nftables")
    # Write this file last: the step's check compares it, so that a killed step is repeated.
    files.write(_FIREWALL_FILE, rules.encode())
