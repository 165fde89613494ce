"""Sign the files of app versions on a machine without network that has the key and BOINC's built tree."""

import os
import pwd
from pathlib import Path

from vcdl.boinc.project.tools import last_words
from vcdl.boinc.server import system
from vcdl.errors import ServerError, for_shell

_NOT_SIGNED = {"version.xml"}
_PROGRAM = Path("tools/sign_executable")


def sign(folder: Path, key: Path, boinc: Path) -> list[Path]:
    """Sign each file of an app version that has no signature, by a .sig next to it, and return the signed files.

    Args:
        folder: A copy of apps/vcdl/N.NN of the project.
        key: The private key.
        boinc: A built tree of BOINC's server.

    Raises:
        ServerError: A file is missing, the key is readable by others, or BOINC's program failed.
    """
    program = boinc / _PROGRAM
    if not folder.is_dir():
        raise ServerError(f"there is no folder {folder}: copy apps/vcdl/N.NN of the project there")
    if not program.is_file():
        raise ServerError(f"{boinc} has no {_PROGRAM}: give a built tree of BOINC's server")
    if not system.is_private(key):
        raise ServerError(f"{key} is missing, or others may read it: `chmod 600 {for_shell(key)}`")
    wanted = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".sig" and path.name not in _NOT_SIGNED and not _signature(path).exists()
    ]
    for path in wanted:
        signature = system.run(
            program.resolve(), path.resolve(), key.resolve(), user=pwd.getpwuid(os.geteuid()).pw_name
        )
        # sign_executable exits with 0 after errors; a signature ends with a dot.
        if not signature.strip().endswith("."):
            raise ServerError(f"{program} did not sign {path}: {last_words(signature)}")
        _signature(path).write_text(signature)
    return wanted


def _signature(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")
