"""Check what a client sees over HTTP: the pages that it reads to attach, the scheduler, and downloads."""

import re
import time
from collections.abc import Generator, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

from vcdl.boinc.doctor.asking import Answer, NoAnswer, ask
from vcdl.boinc.doctor.finding import Finding, Level, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.project import files
from vcdl.boinc.project.server_config import scheduler_in

_SKEW_S = 5.0
"""Seconds by which two clocks may differ without a warning; so little changes no deadline noticeably."""
_PHP_SAID = re.compile(r"<b>(Warning|Notice|Deprecated|Fatal error|Parse error)</b>:\s*(.{0,120})", re.DOTALL)
_PROGRAM = "\x7fELF"
_NOT_IN_GROUP = (
    "see the web server's error log; most often its user is not in the project's group (usermod -a -G, see folder "
    "rights above), or was added to it after the web server started: restart the web server"
)


def check_master_page(installation: Installation) -> Iterator[Finding]:
    """Check the page at the project's URL, from which an attaching client reads the scheduler's address."""
    url = installation.config.master_url
    # Test this without a request: BOINC's client refuses such a URL before it sends one.
    if "." not in url.partition("://")[2]:
        yield failed(
            f'{url} has no dot: BOINC\'s clients say "Invalid URL" and do not attach',
            "create the project again with --url_base and a full name, or an IP address",
        )
        return
    answer = yield from _fetch_page(installation, url)
    if answer is None:
        return
    if (found := scheduler_in(answer.body)) and found == installation.config.scheduler_url:
        yield ok(url)
    elif found:
        yield failed(
            f"{url} names the scheduler {found}, but html/user/schedulers.txt names "
            f"{installation.config.scheduler_url or 'none'}",
            "let <master_url> in config.xml and the Alias of the web server lead to this project's html/user",
        )
    else:
        yield failed(
            f"{url} names no scheduler: no client can attach",
            "make html/user/index.php like BOINC's sample_index.php, which includes schedulers.txt, and check that "
            "<master_url> leads to it",
        )


def _fetch_page(installation: Installation, url: str) -> Generator[Finding, None, Answer | None]:
    """Request a page; yield findings about it, and return the answer, or None if further checks are pointless."""
    try:
        answer = ask(url)
    except NoAnswer as reason:
        yield failed(f"{url}: {reason}; no client can attach", cure_of(installation, reason))
        return None
    finding = _of_php(url, answer)
    if finding is None:
        return answer
    yield finding
    # Check a page with a PHP warning further, because it still contains what clients look for.
    return None if finding.level is Level.FAILED else answer


def check_attach_page(installation: Installation) -> Iterator[Finding]:
    """Check get_project_config.php, the first page that a volunteer's BOINC Manager requests."""
    url = f"{installation.config.master_url.rstrip('/')}/get_project_config.php"
    answer = yield from _fetch_page(installation, url)
    if answer is None:
        return
    if "<project_config>" not in answer.body or "<name>" not in answer.body:
        yield failed(f"{url} answers {_begin(answer)}", "see the web server's error log, and `database` above")
    elif "<web_stopped>1<" in answer.body:
        yield failed("the project's pages are stopped: no client can attach", f"rm {installation.path / 'stop_web'}")
    else:
        yield ok(url)


def check_scheduler(installation: Installation) -> Iterator[Finding]:
    """Check that the scheduler answers in XML; the empty request writes nothing to the database."""
    url = installation.config.scheduler_url
    if not url:
        yield failed(
            "html/user/schedulers.txt names no scheduler: clients cannot attach",
            "write its URL there, as make_project does",
        )
        return
    try:
        answer = ask(url, b"<scheduler_request>\n</scheduler_request>\n")
    except NoAnswer as reason:
        yield failed(f"{url}: {reason}", cure_of(installation, reason))
        return
    if "<scheduler_reply>" not in answer.body or is_program(answer):
        yield failed(f"{url} answers {_begin(answer)}", no_program(answer, "cgi-bin/cgi"))
    elif "open log" in answer.body:
        yield failed(f"it answers: {_message(answer)}", _NOT_IN_GROUP)
    elif "project_is_down" in answer.body:
        yield failed(f"it answers: {_message(answer)}", "bin/start; see `shared memory` and `stop files` above")
    else:
        yield ok(url)
    if answer.date and (skew_s := abs(parsedate_to_datetime(answer.date).timestamp() - time.time())) > _SKEW_S:
        yield failed(f"its clock and this machine's differ by {skew_s:.0f} s", "let NTP (chrony) set both clocks")


def check_downloads(installation: Installation) -> Iterator[Finding]:
    """Check downloads: the client's launcher, and a file of a job if there is any, fetched as a client does."""
    project = installation.project
    launcher = next((path for path in sorted(project.download_dir.glob("vcdl_client_*")) if path.suffix == ""), None)
    if launcher is None:
        yield failed("download/ has no client files", installation.install_command)
        return
    # Try a shard as well: files of jobs are in BOINC's fan-out folders, whose permissions can differ.
    shard = next(project.download_dir.glob("*/vcdl_*.npz"), None)
    for path in (launcher, shard) if shard else (launcher,):
        url = f"{installation.config.download_url.rstrip('/')}/{path.relative_to(project.download_dir)}"
        try:
            yield _same(url, ask(url), path)
        except NoAnswer as reason:
            yield failed(f"{url}: {reason}", cure_of(installation, reason))


def _same(url: str, answer: Answer, path: Path) -> Finding:
    content = files.read(path) or b""
    # Only the first MiB is read (doctor.asking), which is enough to tell a wrong Alias from the file.
    if answer.body.encode("latin-1") == content[: len(answer.body)] and answer.body:
        return ok(url)
    return failed(f"{url} is not the file in download/", "correct download_url, or the Alias of the web server")


def cure_of(installation: Installation, reason: NoAnswer) -> str:
    """Return the cure for a failed request, by its HTTP status, or for no answer at all."""
    configuration = f"{installation.path.name}.httpd.conf"
    match reason.status:
        case 0 if "certificate" in f"{reason}".lower():
            return (
                "get a certificate that clients trust, for the name in <master_url> (certbot --apache); one of your "
                "own must be ca-bundle.crt in each client's data folder, and in SSL_CERT_FILE"
            )
        case 0:
            return "start the web server; check that it listens there, and that no firewall blocks clients"
        case 404:
            return (
                f"cp {installation.path / configuration} /etc/apache2/sites-enabled/ and a2enmod cgi, "
                "restart the web server"
            )
        case 403:
            return (
                "let the web server reach the file (chmod a+r it, a+x all folders above it), and check that it reads "
                f"{configuration}"
            )
        case _:
            return _NOT_IN_GROUP


def is_program(answer: Answer) -> bool:
    """Return whether the web server sent a compiled program instead of running it."""
    return answer.body.startswith(_PROGRAM)


def no_program(answer: Answer, program: str) -> str:
    """Return the cure for a web server that did not return the program's own answer."""
    if is_program(answer):
        return "the web server sends the program instead of running it: a2enmod cgi, then restart it"
    return f"let the web server run {program} there (see PROJECT.httpd.conf); its error log says why the program ends"


def _of_php(url: str, answer: Answer) -> Finding | None:
    """Return a finding about PHP in an answer with status 200: not run, or printing errors; None if all is well."""
    if answer.body.lstrip().startswith("<?php"):
        return failed(
            f"{url} is sent as source text instead of being run by PHP",
            "apt install libapache2-mod-php php-mysql php-xml, then restart the web server",
        )
    if said := _PHP_SAID.search(answer.body):
        return warning(
            f"PHP writes into {url}: {said[1]}: {' '.join(said[2].split())}",
            "set display_errors = Off in the web server's php.ini; its error log still has the messages",
        )
    return None


def _message(answer: Answer) -> str:
    return answer.body.partition("<message")[2].partition(">")[2].partition("<")[0].strip() or "the project is down"


def _begin(answer: Answer) -> str:
    return "with nothing" if not answer.body else repr(answer.body[:80])


CHECKS = (check_master_page, check_attach_page, check_scheduler, check_downloads)
