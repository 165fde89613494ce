"""Check that uploads can be received and deleted.

The upload handler creates files as the web server's user; file_deleter deletes them as the project's user.
"""

import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vcdl.boinc.doctor.asking import Answer, NoAnswer, ask
from vcdl.boinc.doctor.finding import Finding, failed, ok
from vcdl.boinc.doctor.folders import group_of, user_of
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.doctor.web import cure_of, is_program, no_program
from vcdl.boinc.grid.boinc_key import BoincKey
from vcdl.boinc.grid.workunit_rows import IN_PROGRESS, UNSENT
from vcdl.boinc.project import rows
from vcdl.boinc.project.files import DOCTORS_UPLOAD
from vcdl.boinc.project.tools import run_tool

_CONTENT = b"doctor\n"
_SURELY_OVER_S = 60.0
"""Age in seconds from which a leftover of another check is deleted, since a check takes seconds."""


def check_upload_handler(installation: Installation) -> Iterator[Finding]:
    """Check that the upload handler answers; it refuses this request, so no file remains."""
    url = installation.config.upload_url
    try:
        answer = ask(url, b"<data_server_request>\n</data_server_request>\n")
    except NoAnswer as reason:
        yield failed(f"{url}: {reason}", cure_of(installation, reason))
        return
    if "<data_server_reply>" in answer.body and not is_program(answer):
        yield ok(url)
    else:
        yield failed(
            f"{url} answers {answer.body[:80]!r}",
            f"see log_*/file_upload_handler.log; key_dir must have upload_public; "
            f"{no_program(answer, 'cgi-bin/file_upload_handler')}",
        )


def check_upload_folders(installation: Installation) -> Iterator[Finding]:
    """Check the folders in upload/: the web server must be able to write in each, and file_deleter to delete."""
    top = installation.project.upload_dir
    if installation.environment:  # before install there is no mark
        installation.project.check_uploads()
    folders = [path for path in top.iterdir() if path.is_dir()] if top.is_dir() else []
    closed = [folder for folder in folders if not os.access(folder, os.R_OK | os.W_OK | os.X_OK)]
    if closed:
        yield failed(
            f"{len(closed)} of {len(folders)} folders in upload/, such as {closed[0].name}/ of "
            f"{user_of(closed[0])} and the group {group_of(closed[0])}, are closed to this user: "
            "file_deleter frees nothing there",
            _cure(installation),
        )
    elif lost := _find_unwritable(folders):
        yield failed(
            f"{len(lost)} of {len(folders)} folders in upload/, such as {lost[0].name}/, are this user's and closed to "
            "its group: uploads into them are lost, although BOINC reports success to the clients",
            f"chmod g+rwx {' '.join(str(folder) for folder in lost[:5])}",
        )
    else:
        yield ok(f"this user can delete in all {len(folders)}")


def _find_unwritable(folders: Sequence[Path]) -> Sequence[Path]:
    """Return the folders of the project's user in which the web server's user cannot write.

    The result is empty unless other folders show which user the web server has.
    """
    found = {folder: folder.stat() for folder in folders}
    # The web server created the folders of another user, which shows its user.
    if all(it.st_uid == os.geteuid() for it in found.values()):
        return ()  # it may run as the project's user
    return [it for it in folders if found[it].st_uid == os.geteuid() and not found[it].st_mode & stat.S_IWGRP]


def check_certificates(installation: Installation) -> Iterator[Finding]:
    """Check the certificates of unfinished tasks: the upload handler accepts only one key."""
    key = BoincKey.read(installation.project.upload_public)
    app = rows.app_row(installation.database)
    if key is None or app is None:
        return  # the checks "upload certificates" and "app" report it
    found = installation.database.execute(
        "SELECT xml_doc_in FROM result WHERE appid = %s AND server_state IN %s", app.id, (UNSENT, IN_PROGRESS)
    )
    lost = sum(not key.has_certified(description) for (description,) in found)
    if lost:
        yield failed(
            f"{lost} of {len(found)} tasks that are out, or wait to be sent, were signed with another key than "
            f"{installation.display_path(installation.project.upload_public)}: the upload handler will refuse their "
            "files",
            "restore the earlier keys/upload_private and upload_public. If they are lost: bin/stop; bin/start (the "
            "transitioner reads the key at its start), then `vcdl stop JOB` and `vcdl resume JOB` for each open job, "
            "whose tasks are created again",
        )
    else:
        yield ok(f"all {len(found)} tasks were signed with this project's key")


def check_upload(installation: Installation) -> Iterator[Finding]:
    """Upload a small file as a client does, and delete it as file_deleter does."""
    key = installation.config.key_dir / "upload_private"
    if not os.access(key, os.R_OK):
        yield failed(
            f"{installation.display_path(key)} cannot be read: no upload can be tried", "restore it from a backup"
        )
        return
    # Take a name of its own for each examination, since two may run at the same time. By its prefix, a later
    # examination finds and deletes a leftover.
    name = f"{DOCTORS_UPLOAD}{os.getpid()}"
    path = installation.project.upload_path(name)
    # The handler creates missing folders of the fan-out, and the check is whether file_deleter can delete in those.
    is_new = not path.parent.exists()
    try:
        answer = ask(installation.config.upload_url, _request(installation, name, key))
    except NoAnswer:
        return  # the check "upload handler" reports it
    if is_program(answer):
        return
    if not path.is_file():
        yield failed(f"an upload with a certificate is refused: {_said(answer)}", _refusal_cure(installation))
        return
    owner, group = user_of(path.parent), group_of(path.parent)
    try:
        path.unlink()
    except OSError as error:
        yield failed(
            f"{installation.display_path(path)} was uploaded, and this user cannot delete it ({error.strerror}): the "
            f"folder that the web server made is {owner}'s, of the group {group}, so file_deleter frees nothing",
            _cure(installation),
        )
        return
    if is_new:
        with suppress(OSError):  # another upload came into it
            path.parent.rmdir()
    _sweep(installation.project.upload_dir)
    yield ok(f"a file arrived as {owner}'s and could be deleted by {user_of(installation.path / 'config.xml')}")


def _sweep(top: Path) -> None:
    """Delete files that an earlier examination left in upload/, unless they are so new that it may be running."""
    for rest in top.glob(f"*/{DOCTORS_UPLOAD}*"):
        with suppress(OSError):
            if rest.stat().st_mtime < time.time() - _SURELY_OVER_S:
                rest.unlink()


def _request(installation: Installation, name: str, key: Path) -> bytes:
    certificate = f"<name>{name}</name><max_nbytes>{len(_CONTENT)}</max_nbytes>"
    with tempfile.TemporaryDirectory(prefix="vcdl-doctor-") as folder:
        file = Path(folder) / "certificate"
        file.write_text(certificate)
        signature = run_tool(installation.path, "sign_executable", str(file), str(key))
    return (
        "<data_server_request>\n<file_upload>\n<file_info>\n"
        f"<name>{name}</name>\n<max_nbytes>{len(_CONTENT)}</max_nbytes>\n"
        f"<xml_signature>\n{signature.strip()}\n</xml_signature>\n</file_info>\n"
        f"<nbytes>{len(_CONTENT)}</nbytes>\n<offset>0</offset>\n<data>\n"
    ).encode() + _CONTENT


def _said(answer: Answer) -> str:
    return answer.body.partition("<message>")[2].partition("</message>")[0].strip() or repr(answer.body[:80])


def _refusal_cure(installation: Installation) -> str:
    return (
        "see log_*/file_upload_handler.log; `invalid signature`: upload_private and upload_public are not a pair; "
        f"`can't open`: {_cure(installation)}"
    )


def _cure(installation: Installation) -> str:
    group, top = group_of(installation.path / "config.xml"), installation.project.upload_dir
    return (
        f"as root: usermod -a -G {group} WEB_SERVER_USER; chgrp -R {group} {top}; "
        f"find {top} -type d -exec chmod 2770 {{}} +; then restart the web server"
    )


CHECKS = (check_upload_handler, check_upload_folders, check_certificates, check_upload)
