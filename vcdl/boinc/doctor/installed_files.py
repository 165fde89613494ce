"""Check the files that install wrote, and those that they need."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from vcdl.boinc.doctor.finding import Finding, failed, ok
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.environment import PYTHON_VARIABLE
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.boinc.project import files
from vcdl.boinc.project.edited_files import EDITED, Fragment
from vcdl.boinc.project.record import Record
from vcdl.boinc.project.xml_document import XmlDocument
from vcdl.errors import GridError
from vcdl.files.shipped import shipped_folder

_CERTIFICATES = ("dont_generate_upload_certificates", "ignore_upload_certificates")
_BREAK_AFTER_RESULT = re.compile(rb"<result>[ \t]*\r?\n")


def check_installed_files(installation: Installation) -> Iterator[Finding]:
    """Check that VCDL is installed, and that its files and its entries in the project's files are unchanged."""
    record = Record.of(installation.path)
    if not record.installed or PYTHON_VARIABLE not in installation.environment:
        yield failed("VCDL is not installed in this project, or only in part", installation.install_command)
        return
    # An edited file is in order if adding our fragment changes nothing, whatever else the operator wrote.
    missing = [
        name for name in EDITED if not _holds(installation.path / name, Fragment.load_shipped(name, record.threads))
    ]
    for launcher in files.launchers():
        path = installation.project.bin / launcher.name
        if files.read(path) != launcher.read_bytes() or not os.access(path, os.X_OK):
            missing.append(f"bin/{launcher.name}")
    if not (key := WeightsKey.file(installation.path)).is_file():
        missing.append(
            installation.display_path(key)
        )  # without it clients begin with the weights their workunit was made from
    if missing:
        yield failed(
            f"not as install left them: {', '.join(missing)}",
            f"{installation.install_command} --dry-run, and then without --dry-run",
        )
    else:
        yield ok(f"{', '.join(EDITED)} and bin/vcdl_* are in order")


def check_upload_certificates(installation: Installation) -> Iterator[Finding]:
    """Check that BOINC requires upload certificates.

    Without them anybody can upload a file in place of almost any other.
    """
    off = [name for name in _CERTIFICATES if installation.config.settings.get(name, "0") not in ("0", "")]
    missing = [
        name for name in ("upload_private", "upload_public") if not (installation.config.key_dir / name).is_file()
    ]
    if off:
        yield failed(f"{' and '.join(off)} in config.xml: anybody may upload anything", installation.install_command)
    elif missing:
        yield failed(
            f"{' and '.join(missing)} missing in {installation.display_path(installation.config.key_dir)}",
            "restore the keys from the backup; running tasks were signed with them",
        )
    else:
        yield ok("present and required")


def check_templates(installation: Installation) -> Iterator[Finding]:
    """Check the templates: BOINC reads them by line, and without a line break after <result> sends no task."""
    paths = [
        *sorted(shipped_folder("templates").glob("*.xml")),
        *sorted(installation.project.templates.glob("vcdl_*.xml")),
    ]
    wrong = {path.name: reason for path in paths if (reason := _wrong(path))}
    # Include templates of jobs that ended: a transitioner that creates a result for such a workunit without its
    # template exits, and is not restarted.
    named = installation.database.execute(
        "SELECT DISTINCT result_template_file FROM workunit WHERE assimilate_state <> 2"
    )
    lost = [str(name) for (name,) in named if name and not (installation.path / str(name)).is_file()]
    wrong |= {Path(name).name: "missing, and open workunits name it: the transitioner exits" for name in lost}
    if wrong:
        yield failed(
            "; ".join(f"{name}: {reason}" for name, reason in wrong.items()),
            "restore templates/ from the backup, or delete the file: the work generator writes it again; if the file "
            "belongs to VCDL, install VCDL again",
        )
    elif not installation.project.templates.is_dir() or not os.access(installation.project.templates, os.W_OK):
        templates = installation.project.templates
        yield failed("templates/ is missing or not writable", f"mkdir -p {templates}; chmod u+rwx {templates}")
    else:
        yield ok(f"{len(paths)} in order")


def _holds(path: Path, fragment: Fragment) -> bool:
    now = files.read(path)
    return now is not None and fragment.add_to(path, now) == now


def _wrong(path: Path) -> str:
    content = files.read(path) or b""
    try:
        document = XmlDocument(path, content)
    except GridError:
        return "not well-formed"
    if document.root.find("result") is not None and not _BREAK_AFTER_RESULT.search(content):
        return "no line break after <result>"
    return ""


CHECKS = (check_installed_files, check_upload_certificates, check_templates)
