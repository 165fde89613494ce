"""Stubs that some BOINC clients put in place of a file's copy: `<soft_link>` and the name of the real file.

VCDL's templates ask for copies; a template that an operator changed, or another client, may not.
"""

import os
import re
import shutil
from pathlib import Path

from vcdl.client.slot import SlotError
from vcdl.files.atomic import atomic_write, sweep
from vcdl.wire.workunit import FROZEN_FILE, INPUT_FILES, OUTPUT_FILE

_LINK = re.compile(rb"<soft_link>([^<\0]+)</soft_link>")
_STUB_LIMIT_BYTES = 1024
_OUTPUT_LINK = f"{OUTPUT_FILE}.link"


def resolve_stubs(slot: Path, project: Path) -> None:
    """Replace the inputs' stubs by the real files, and put the output's stub aside.

    Raises OSError, and SlotError for a stub that leads out of the project's folder.
    """
    for name in (*INPUT_FILES, FROZEN_FILE):
        path = slot / name
        target = _target(path, project)
        if target is not None:
            _put_in_place(path, target)
    if _target(slot / OUTPUT_FILE, project) is not None:
        (slot / OUTPUT_FILE).replace(slot / _OUTPUT_LINK)


def deliver_output(slot: Path, project: Path) -> None:
    """Copy the output to the target of its stub, if there was one. Raises SlotError and OSError."""
    target = _target(slot / _OUTPUT_LINK, project)
    if target is None:
        return
    sweep(target.parent)  # nobody but this program's tasks writes such files there
    with atomic_write(target) as temporary:
        shutil.copyfile(slot / OUTPUT_FILE, temporary)


def _target(path: Path, project: Path) -> Path | None:
    """The target of a stub; None for any other file."""
    try:
        with path.open("rb") as file:
            start = file.read(_STUB_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    match = _LINK.match(start)
    if match is None:
        return None
    target = (path.parent / os.fsdecode(match[1].strip())).resolve()
    if not target.is_relative_to(project.resolve()):  # a job must not choose files of the host to read
        raise SlotError(f"{path.name} leads out of the project's folder: fetch the workunit's files again")
    return target


def _put_in_place(path: Path, target: Path) -> None:
    with atomic_write(path) as temporary:
        try:
            temporary.symlink_to(target)
        except OSError:  # Windows allows links to administrators only
            shutil.copyfile(target, temporary)
