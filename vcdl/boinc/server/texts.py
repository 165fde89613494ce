"""Generate the files that an installation writes outside the project: systemd units, Apache's site, and others.

Pure functions of the settings.
"""

import re
from pathlib import Path

from vcdl.boinc.project.install_options import SERVICE_PORT, service_path
from vcdl.boinc.server.settings import LETS_ENCRYPT, ServerSettings, is_of_age
from vcdl.errors import ServerError

WEB_USER = "www-data"
COMMAND = Path("/usr/local/bin/vcdl")
_UNITS = Path("/etc/systemd/system")
_SITE_LINE = re.compile(r"#|(Script)?Alias /|</?Directory\b|RemoveType |Require |Options |AllowOverride ")
ACME_FOLDER = Path("/var/www/html")


def project_unit(settings: ServerSettings) -> str:
    """Return the daemons' unit.

    Each minute it runs bin/start, which starts missing daemons and periodic tasks, as cron would. bin/stop does not
    wait for daemons to end: systemd repeats its signal, and kills them after the timeout.
    """
    needs = "network-online.target mariadb.service"
    return _lasting(
        settings,
        f"BOINC project {settings.name}: its daemons\nAfter={needs} redis-server.service\nWants={needs}",
        f"""\
Environment=USER={settings.user}
ExecStart=/bin/sh -c 'bin/start; while sleep 60; do bin/start --cron; done'
ExecStop={settings.project}/bin/stop
KillSignal=SIGHUP
TimeoutStopSec=150
""",
    )


def web_unit(settings: ServerSettings) -> str:
    """Return the unit of the service. Its output contains a login code, so it is not logged."""
    tls = f" --port {SERVICE_PORT} --path {service_path(settings.url)} --behind-tls" if settings.tls else ""
    return _lasting(
        settings,
        f"VCDL's service over the jobs of {settings.name}\nAfter={settings.name}.service",
        f"""\
ExecStart={COMMAND} serve --project-dir {settings.project} --host-name {settings.host}{tls}
StandardOutput=null
""",
    )


def _lasting(settings: ServerSettings, description: str, service: str) -> str:
    """Return a unit that runs a service as the project's user, and restarts it whenever it ends."""
    return f"""\
[Unit]
Description={description}

[Service]
User={settings.user}
WorkingDirectory={settings.project}
{service}Restart=always
RestartSec=15

[Install]
WantedBy=multi-user.target
"""


def backup_unit(settings: ServerSettings) -> str:
    return f"""\
[Unit]
Description=Backup of the BOINC project {settings.name}

[Service]
Type=oneshot
ExecStart={COMMAND} server backup --name {settings.name}
Nice=10
IOSchedulingClass=idle
"""


def backup_timer(settings: ServerSettings) -> str:
    return f"""\
[Unit]
Description=Nightly backup of the BOINC project {settings.name}

[Timer]
OnCalendar=*-*-* 03:30
RandomizedDelaySec=15min
Persistent=true

[Install]
WantedBy=timers.target
"""


def units(settings: ServerSettings, *, with_web: bool) -> dict[Path, str]:
    """Return the systemd units, by their files."""
    found = {f"{settings.name}.service": project_unit(settings)}
    if with_web:
        found[f"{settings.name}-web.service"] = web_unit(settings)
    if settings.backup_to:
        found[f"{settings.name}-backup.service"] = backup_unit(settings)
        found[f"{settings.name}-backup.timer"] = backup_timer(settings)
    return {_UNITS / name: text for name, text in found.items()}


def to_start(settings: ServerSettings, *, with_web: bool) -> list[str]:
    """Return the units to enable and start."""
    names = [path.name for path in units(settings, with_web=with_web)]
    return [name for name in names if name != f"{settings.name}-backup.service"]


def log_rotation(settings: ServerSettings) -> str:
    """Return the log rotation.

    It needs `copytruncate`, as daemons keep their files open, and `su` for the scheduler's logs.
    """
    return f"""\
{settings.project}/log_*/*.log {{
    su {WEB_USER} {settings.user}
    weekly
    rotate 8
    compress
    missingok
    notifempty
    copytruncate
}}
"""


def service_location(port: int | str, path: str) -> str:
    """Return Apache's lines that forward a path to the service."""
    return f"""\
<Location "{path}/">
    ProxyPreserveHost On
    ProxyPass "http://127.0.0.1:{port}{path}/" flushpackets=on timeout=300
</Location>
"""


def site(settings: ServerSettings, project_part: str, *, with_tls: bool, with_web: bool) -> str:
    """Return Apache's site.

    The service is not reachable by plain HTTP: its tokens would travel in the clear.

    Args:
        settings: The server's settings.
        project_part: The lines that make_project wrote for the project.
        with_tls: Whether there is a certificate; without one the site is plain HTTP only.
        with_web: Whether there is a service.

    Raises:
        ServerError: The certificate's settings are wrong.
    """
    lines = [line.strip() for line in project_part.splitlines()]
    if strange := [line for line in lines if line and not _SITE_LINE.match(line)]:  # Apache will obey it as root
        raise ServerError(f"{settings.project}/{settings.name}.httpd.conf: {strange[0][:80]!r} is not make_project's")
    body = "\n".join(f"    {line}" for line in lines if line and not line.startswith("#"))
    if not with_tls:
        return f"<VirtualHost *:80>\n    ServerName {settings.host}\n{body}\n</VirtualHost>\n"
    certificate, key = settings.certificate
    service = service_location(SERVICE_PORT, service_path(settings.url)) if with_web else ""
    return f"""\
<VirtualHost *:80>
    ServerName {settings.host}
    DocumentRoot {ACME_FOLDER}
    RewriteEngine On
    RewriteCond %{{REQUEST_URI}} !^/\\.well-known/acme-challenge/
    RewriteRule ^ {settings.url_base.rstrip("/")}%{{REQUEST_URI}} [R=308,L]
</VirtualHost>
<VirtualHost *:443>
    ServerName {settings.host}
    SSLEngine On
    SSLCertificateFile {certificate}
    SSLCertificateKeyFile {key}
{body}
{service}</VirtualHost>
"""


def redis_settings(password: str) -> str:
    """Return Redis' settings: it saves every second, requires a password, and listens on this machine only."""
    return f"bind 127.0.0.1 -::1\nrequirepass {password}\nappendonly yes\nappendfsync everysec\n"


def firewall(ssh_port: int) -> str:
    """Return the rules of nftables: a table of its own that admits ssh, HTTP, HTTPS and ICMP.

    Protocols are given by number (1: ICMP, 58: ICMPv6), as a minimal Debian does not know the names.
    """
    ports = ", ".join(str(port) for port in sorted({22, ssh_port, 80, 443}))
    return f"""\
table inet vcdl
delete table inet vcdl
table inet vcdl {{
    chain input {{
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        iif lo accept
        meta l4proto {{ 1, 58 }} accept
        tcp dport {{ {ports} }} accept
    }}
}}
"""


def packages(settings: ServerSettings, *, with_web: bool) -> list[str]:
    """Return the Debian packages to install.

    `a|b` means either, as releases name them differently.
    """
    wanted = [
        *("apache2", "libapache2-mod-php", "apache2-utils", "php-cli", "php-gd", "php-mysql", "php-xml"),
        *("mariadb-server", "python-is-python3", "python3-mysqldb", "logrotate", "openssl", "procps"),
        *("ca-certificates", "libcurl4t64|libcurl4", "libzip5|libzip4t64|libzip4", "libmariadb3"),
    ]
    wanted += ["redis-server"] * settings.redis + ["nftables"] * settings.firewall
    wanted += ["certbot"] * (settings.tls == LETS_ENCRYPT)
    if settings.backup_for:
        wanted.append("age" if is_of_age(settings.backup_for) else "gnupg")
    return wanted
