"""Check the permissions of files with secrets."""

import stat
from collections.abc import Iterator

from vcdl.boinc.doctor.finding import Finding, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.environment import environment_file
from vcdl.boinc.grid.weights_key import WeightsKey

_UPLOADS = "whoever has it can upload anything in place of any result"
_PROGRAMS = "whoever has it can run any program on volunteers' computers"
_DATABASE = "whoever has it can change every row, credit too"


def check_secret_files(installation: Installation) -> Iterator[Finding]:
    """Check the modes of files with passwords and keys.

    BOINC creates them by the umask, and the project's group must be able to read some of them.
    """
    files = {installation.path / "config.xml": f"the database's password is in it, and {_DATABASE}"}
    files[installation.config.key_dir / "upload_private"] = _UPLOADS
    files[environment_file(installation.path)] = "it may hold the password of the weight store"
    files[WeightsKey.file(installation.path)] = "whoever has it can give clients other weights to start from"
    is_well = True
    key = installation.config.key_dir / "code_sign_private"
    # Only the code signing key must be closed to the group too: the web server's user, who is in the project's group,
    # needs the others to sign and to verify.
    if key.is_file() and key.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        is_well = False
        who = "every user" if key.stat().st_mode & stat.S_IROTH else "the group, and so the web server,"
        yield failed(
            f"{who} of this machine may read {installation.display_path(key)}: {_PROGRAMS}", f"chmod 600 {key}"
        )
    for path, meaning in files.items():
        if path.is_file() and path.stat().st_mode & stat.S_IROTH:
            is_well = False
            yield warning(
                f"every user of this machine may read {installation.display_path(path)}: {meaning}",
                f"chmod o-rwx {path}",
            )
    if is_well:
        yield ok("closed to the other users of this machine")


CHECKS = (check_secret_files,)
