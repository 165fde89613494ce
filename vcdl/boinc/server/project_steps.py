"""The steps of an installation on the project: make_project, permissions, passwords, VCDL, web site, units, doctor."""

import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vcdl.boinc.doctor.asking import NoAnswer, ask
from vcdl.boinc.grid.project_folder import this_machine
from vcdl.boinc.project import files
from vcdl.boinc.project.tools import last_words
from vcdl.boinc.server import system, texts
from vcdl.boinc.server.machine_steps import check_python, machine_steps, redis_password
from vcdl.boinc.server.settings import ETC, LETS_ENCRYPT, NO_TLS, SELF_SIGNED, ServerSettings
from vcdl.boinc.server.steps import ServerStep, file_step
from vcdl.errors import ServerError
from vcdl.errors.backoff import wait_until
from vcdl.files.extras import is_installed
from vcdl.stores.settings import PASSWORD_VARIABLE

_SITES = Path("/etc/apache2/sites-enabled")
_MODULES = ("cgi", "alias", "rewrite", "ssl", "proxy_http")
_TRUSTED = Path("/usr/local/share/ca-certificates")
_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_OPERATOR = "operator"
_SECRETS = {"keys/code_sign_private": 0o600, "keys/upload_private": 0o640, "config.xml": 0o640}
_STARTING_S = 90.0
"""Seconds in which the daemons must have started: BOINC's own need some seconds, so more means a fault."""
_PASSWORD_TAG = re.compile(r"<db_passwd>[^<]*</db_passwd>|<db_passwd/>")


def has_web() -> bool:
    """Return whether this installation of VCDL has the packages of its service."""
    return is_installed("fastapi", "uvicorn")


def install_steps(settings: ServerSettings, between: Iterable[ServerStep] = ()) -> Iterator[ServerStep]:
    """Yield all steps of an installation.

    Args:
        settings: The server's settings.
        between: The steps of a restore, which come after the project is made and before anything serves.

    Raises:
        ServerError: The settings are wrong.
    """
    settings.check()
    check_python(settings.python)
    yield from machine_steps(settings, with_web=has_web())
    yield from project_steps(settings)
    yield from between
    yield from serving_steps(settings)


def project_steps(settings: ServerSettings) -> Iterator[ServerStep]:
    """Yield the steps that make the project's folder with make_project, its permissions and passwords."""
    project = settings.project
    yield ServerStep(
        f"project {project}, by BOINC's make_project", lambda: is_made(settings), lambda: _make_project(settings)
    )
    yield ServerStep("keys and config.xml closed to others", lambda: _is_closed(settings), lambda: close(settings))
    yield ServerStep(
        "database password, known to config.xml alone",
        lambda: _has_password(settings),
        lambda: set_database_password(settings),
    )
    operator = ETC / f"{settings.name}.operator"
    yield ServerStep(
        f"password of the operators' pages, in {operator}",
        lambda: system.is_private(operator) and (project / "html/ops/.htpasswd").is_file(),
        lambda: _set_operator(settings, operator),
    )


def serving_steps(settings: ServerSettings) -> Iterator[ServerStep]:
    """Yield the steps that install VCDL in the project, and, last, start all that serves clients."""
    yield install_step(settings)
    rotation = Path("/etc/logrotate.d") / settings.name
    yield file_step("log rotation", rotation, texts.log_rotation(settings).encode())
    yield ServerStep(
        f"units {', '.join(_units(settings))}", lambda: _are_started(settings), lambda: _start_units(settings)
    )
    if settings.tls == SELF_SIGNED:
        yield ServerStep(
            "self-signed certificate", lambda: _has_certificate(settings), lambda: _sign_certificate(settings)
        )
    if settings.tls == LETS_ENCRYPT:
        yield ServerStep(
            "certificate of Let's Encrypt",
            lambda: settings.certificate[0].is_file(),
            lambda: _order_certificate(settings),
        )
    yield ServerStep(
        f"Apache serves {settings.url}", lambda: _is_served(settings), lambda: enable_apache_site(settings)
    )
    yield doctor_step(settings)


def install_step(settings: ServerSettings) -> ServerStep:
    return ServerStep("VCDL in the project", lambda: _is_installed(settings), lambda: _install(settings))


def doctor_step(settings: ServerSettings) -> ServerStep:
    return ServerStep("doctor is content", lambda: is_healthy(settings), lambda: _wait_for_doctor(settings))


def is_made(settings: ServerSettings) -> bool:
    """Return whether make_project completed: the file that it writes last exists."""
    return (settings.project / f"{settings.name}.readme").is_file()


def is_healthy(settings: ServerSettings) -> bool:
    """Return whether the doctor finds no failure."""
    return system.succeeds(texts.COMMAND, "project", "doctor", "--project-dir", settings.project, user=settings.user)


def complaints(settings: ServerSettings) -> list[str]:
    """Run the doctor, and return its failures as lines, each followed by its cure."""
    # Hide the exit code by `true`: the doctor is expected to fail here, and its output is wanted.
    script = f"{texts.COMMAND} project doctor --project-dir {settings.project} 2>&1; true"
    said = system.run("sh", "-c", script, user=settings.user).splitlines()
    failed = [number for number, line in enumerate(said) if line.startswith("failed")]
    return [line.strip() for number in failed for line in said[number : number + 2]] or [
        f"the doctor did not run: {last_words(' '.join(said))}"
    ]


def enable_apache_site(settings: ServerSettings) -> None:
    """Write Apache's site of the project, and restart Apache."""
    system.run("a2enmod", "--quiet", *_MODULES)
    files.write(_SITES / f"{settings.name}.conf", _site(settings).encode())
    # Remove the default site: Apache answers requests for an unknown name with its first site in the order of file
    # names.
    (_SITES / "000-default.conf").unlink(missing_ok=True)
    # Test before the restart: with a broken configuration Apache would stop and serve nothing.
    system.run("apache2ctl", "configtest")
    system.run("systemctl", "enable", "--quiet", "apache2")
    system.run("systemctl", "restart", "apache2")


def stop_serving(settings: ServerSettings) -> None:
    """Disable the site in Apache; clients that cannot reach the project try again soon."""
    (_SITES / f"{settings.name}.conf").unlink(missing_ok=True)
    if system.is_active("apache2"):
        system.run("systemctl", "reload", "apache2")


def set_config_password(settings: ServerSettings, password: str) -> None:
    """Write the database's password into config.xml, which keeps its owner and mode."""
    path = settings.project / "config.xml"
    text = path.read_text()
    element = f"<db_passwd>{password}</db_passwd>"
    found = _PASSWORD_TAG.search(text)
    new = _PASSWORD_TAG.sub(element, text) if found else text.replace("<config>", f"<config>\n        {element}", 1)
    status = path.stat()
    files.write(path, new.encode())
    os.chown(path, status.st_uid, status.st_gid)


def config_password(settings: ServerSettings) -> str:
    """Return the database's password in config.xml."""
    text = (files.read(settings.project / "config.xml") or b"").decode()
    found = re.search(r"<db_passwd>([^<]*)</db_passwd>", text)
    return found[1].strip() if found else ""


def _make_project(settings: ServerSettings) -> None:
    """Run BOINC's make_project as the project's user, replacing an incomplete project of a killed run.

    Raises:
        ServerError: The build cannot be used here, a complete project is in the way, or make_project failed.
    """
    tools, mark = settings.boinc / "tools", ETC / f"{settings.name}.making"
    if not (tools / "make_project").is_file() or not (settings.boinc / "sched" / "feeder").is_file():
        raise ServerError(
            f"{settings.boinc} is not a built tree of BOINC's server (it lacks tools/make_project or sched/feeder): "
            "docs/operator.md says how to build it"
        )
    # configure writes the build's folder into the tools, which fail in any other folder with an error that does not say
    # so.
    built_in = re.search(r'^TOP_BUILD_DIR = "(.*)"', (tools / "boinc_path_config.py").read_text(), re.M)
    if built_in and not (Path(built_in[1]) / "py").is_dir():
        raise ServerError(
            f"{settings.boinc} was built as {built_in[1]}, and works only there: move it, or build it again"
        )
    lacking = [
        line.split()[0]
        for line in system.run("ldd", settings.boinc / "sched" / "feeder").splitlines()
        if line.endswith("not found")
    ]
    if lacking:
        raise ServerError(
            f"{settings.boinc} was built for another system (here {', '.join(lacking)} is missing): build it here"
        )
    # --delete_prev_inst below deletes folder and database, so an existing project needs a mark that this program began
    # it.
    if settings.project.exists() and not mark.exists():
        raise ServerError(f"{settings.project} exists, and is not a complete project: move it away, or choose --name")
    mark.touch()
    again = ["--delete_prev_inst", "--drop_db_first"]
    system.run(
        "./make_project", "--no_query", *again, "--project_host", this_machine(),
        "--url_base", settings.url_base, "--db_user", settings.user, "--db_host", "localhost",
        settings.name, settings.title, user=settings.user, cwd=tools,
    )  # fmt: skip
    if not is_made(settings):
        raise ServerError(f"make_project did not complete {settings.project}: run it by hand as {settings.user}")
    mark.unlink()


def close(settings: ServerSettings) -> None:
    """Restrict keys and passwords to their owner and the users that need them.

    Raises:
        ServerError: A mode cannot be set.
    """
    for path, mode in _find_exposed_secrets(settings):
        system.own(path, settings.user, mode)


def _is_closed(settings: ServerSettings) -> bool:
    return settings.project.exists() and not _find_exposed_secrets(settings)


def _find_exposed_secrets(settings: ServerSettings) -> list[tuple[Path, int]]:
    """Return the secrets that too many users may read or write, with their proper modes; missing files are skipped."""
    modes = {settings.project / name: mode for name, mode in _SECRETS.items()}
    return [(path, mode) for path, mode in modes.items() if path.exists() and path.stat().st_mode & 0o777 & ~mode]


def _has_password(settings: ServerSettings) -> bool:
    """Return whether others, such as the web server's user, can log in with the password in config.xml."""
    password = config_password(settings)
    login = f"[client]\nuser={settings.user}\npassword={password}\n"
    return bool(password) and system.succeeds(
        "mariadb", "--defaults-extra-file=/dev/stdin", "--execute", "SELECT 1", stdin=login
    )


def set_database_password(settings: ServerSettings) -> None:
    """Set the database user's password to that of config.xml, or to a new one if there is none."""
    password = config_password(settings) or secrets.token_urlsafe(24)
    set_config_password(settings, password)
    who = f"'{settings.user}'@localhost"
    system.sql(f"ALTER USER {who} IDENTIFIED VIA unix_socket OR mysql_native_password USING PASSWORD('{password}')")


def _set_operator(settings: ServerSettings, kept: Path) -> None:
    password = (files.read(kept) or b"").decode().strip() or secrets.token_urlsafe(16)
    files.write(kept, f"{password}\n".encode(), files.SECRET_MODE)
    path = settings.project / "html" / "ops" / ".htpasswd"
    system.run("htpasswd", "-i", "-c", "-B", path, _OPERATOR, user=settings.user, stdin=password)


def _command(settings: ServerSettings) -> list[str | Path]:
    store = ("--redis", "redis://127.0.0.1:6379") if settings.redis else ()
    return [texts.COMMAND, "project", "install", "--project-dir", settings.project, "--python", settings.python, *store]


def _store_password(settings: ServerSettings) -> dict[str, str]:
    return {PASSWORD_VARIABLE: redis_password()} if settings.redis else {}


def _is_installed(settings: ServerSettings) -> bool:
    more = _store_password(settings)
    said = system.run(*_command(settings), "--dry-run", user=settings.user, more=more, fails=True)
    return said.startswith("nothing to change")


def _install(settings: ServerSettings) -> None:
    system.run(*_command(settings), user=settings.user, more=_store_password(settings))


def _units(settings: ServerSettings) -> list[str]:
    return texts.to_start(settings, with_web=has_web())


def _are_started(settings: ServerSettings) -> bool:
    names = _units(settings)
    stale = system.run("systemctl", "show", "--property=NeedDaemonReload", *names, fails=True)
    if _changed_units(settings) or "=yes" in stale:
        return False
    return system.is_active(*names) and system.succeeds("systemctl", "is-enabled", "--quiet", *names)


def _start_units(settings: ServerSettings, again: Collection[str] = ()) -> None:
    """Write the units and start them.

    Units that changed, and those in `again`, are stopped first.
    """
    changed, names = _changed_units(settings), _units(settings)
    for path, text in changed.items():
        files.write(path, text.encode())
    system.run("systemctl", "daemon-reload")
    system.run("systemctl", "enable", "--quiet", *names)
    # Use one stop and one start instead of restarts: the service is ordered after the daemons, and would start twice.
    if stopped := {*again, *(path.name for path in changed)} & set(names):
        system.run("systemctl", "stop", *sorted(stopped))
    system.run("systemctl", "start", *names)


def _changed_units(settings: ServerSettings) -> dict[Path, str]:
    wanted = texts.units(settings, with_web=has_web())
    return {path: text for path, text in wanted.items() if files.read(path) != text.encode()}


def restart_units(settings: ServerSettings) -> None:
    """Restart all units, so that they run what is installed now."""
    _start_units(settings, [name for name in _units(settings) if name.endswith(".service")])


def _has_certificate(settings: ServerSettings) -> bool:
    certificate, key = settings.certificate
    return (
        system.is_private(key)
        and certificate.is_file()
        and certificate.read_bytes() in (files.read(_BUNDLE) or b"")
        and _is_for(settings, certificate)
    )


def _sign_certificate(settings: ServerSettings) -> None:
    certificate, key = settings.certificate
    if not (system.is_private(key) and _is_for(settings, certificate)):  # otherwise it came with a backup
        make_certificate(settings, certificate, key)
    trust(settings)


def trust(settings: ServerSettings) -> None:
    """Add the certificate to those that this machine trusts, because the doctor sends requests as a client does."""
    files.write(_TRUSTED / f"vcdl-{settings.name}.crt", settings.certificate[0].read_bytes())
    system.run("update-ca-certificates")


def _is_for(settings: ServerSettings, certificate: Path) -> bool:
    names = system.run("openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", certificate, fails=True)
    return settings.host in names


def make_certificate(settings: ServerSettings, certificate: Path, key: Path) -> None:
    """Make a self-signed certificate; its file is written last.

    Raises:
        ServerError: openssl failed.
    """
    kind = "IP" if settings.host.replace(".", "").isdigit() or ":" in settings.host else "DNS"
    files.write(key, system.run("openssl", "genrsa", "2048").encode(), files.SECRET_MODE)
    made = system.run(
        "openssl", "req", "-x509", "-new", "-key", key, "-days", "3650", "-subj", f"/CN={settings.host}",
        "-addext", f"subjectAltName={kind}:{settings.host}",
    )  # fmt: skip
    files.write(certificate, made.encode())


def _order_certificate(settings: ServerSettings) -> None:
    enable_apache_site(settings)  # over plain HTTP, which Let's Encrypt requests
    system.run(
        "certbot", "certonly", "--non-interactive", "--agree-tos", "--webroot", "--webroot-path", texts.ACME_FOLDER,
        "--domain", settings.host, "--email", settings.email, "--deploy-hook", "systemctl reload apache2",
    )  # fmt: skip


def _site(settings: ServerSettings) -> str:
    part = files.read(settings.project / f"{settings.name}.httpd.conf") or b""
    # Leave out TLS until Let's Encrypt has answered: Apache does not start if the certificate's file is missing.
    with_tls = settings.tls != NO_TLS and settings.certificate[0].is_file()
    return texts.site(settings, part.decode(), with_tls=with_tls, with_web=has_web())


def _is_served(settings: ServerSettings) -> bool:
    # Leave out `cgi`: with a threaded Apache a2enmod enables cgid in its place.
    enabled = all((Path("/etc/apache2/mods-enabled") / f"{name}.load").exists() for name in _MODULES if name != "cgi")
    written = files.read(_SITES / f"{settings.name}.conf") == _site(settings).encode()
    return enabled and written and _answers(f"{settings.url}get_project_config.php")


def _answers(url: str) -> bool:
    """Return whether Apache answers at the URL: its configuration may be written but not loaded."""
    try:
        ask(url)
    except NoAnswer:
        return False
    return True


def _wait_for_doctor(settings: ServerSettings) -> None:
    """Wait until the doctor finds no failure; daemons take some seconds to start.

    Raises:
        ServerError: The doctor still reports failures, which the message contains.
    """
    if not wait_until(lambda: is_healthy(settings), _STARTING_S, every_s=5.0):
        raise ServerError(
            "\n".join(["the doctor is not content:", *complaints(settings), "fix it, and run this again"])
        )
