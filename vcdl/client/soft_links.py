"""Logical names that the BOINC client sets up as `<soft_link>` stubs instead of copies: small files that name the real one.

VCDL's templates ask for copies; a template that an operator changed, or another client, may not.
"""

import os
import re
import shutil
from pathlib import Path

from vcdl.client.slot import SlotError
from vcdl.workunit import INPUT_FILES, OUTPUT_FILE

_LINK = re.compile(rb"<soft_link>([^<\0]+)</soft_link>")
_STUB_LIMIT_BYTES = 1024
_OUTPUT_LINK = f"{OUTPUT_FILE}.link"


def resolve_stubs(slot: Path, project: Path) -> None:
    """Put the real inputs in the place of their stubs, and lay the output's stub aside.

    Raises SlotError for a stub that leads out of the project's folder, and OSError.
    """
    for name in INPUT_FILES:
        path = slot / name
        target = _target(path, project)
        if target is not None:
            _put_in_place(path, target)
    if _target(slot / OUTPUT_FILE, project) is not None:
        (slot / OUTPUT_FILE).replace(slot / _OUTPUT_LINK)


def deliver_output(slot: Path, project: Path) -> None:
    """Copy the output to where its stub led, if it was one. Raises SlotError and OSError."""
    target = _target(slot / _OUTPUT_LINK, project)
    if target is None:
        return
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        shutil.copyfile(slot / OUTPUT_FILE, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _target(path: Path, project: Path) -> Path | None:
    """Where a stub leads; None for anything else."""
    try:
        with path.open("rb") as file:
            start = file.read(_STUB_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    match = _LINK.match(start)
    if match is None:
        return None
    target = (path.parent / os.fsdecode(match[1].strip())).resolve()
    if not target.is_relative_to(project.resolve()):  # a job's data must not choose which files of the host are read
        raise SlotError(f"{path.name} leads out of the project's folder: fetch the workunit's files again")
    return target


def _put_in_place(path: Path, target: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(target)
    except OSError:  # Windows keeps links for administrators
        shutil.copyfile(target, temporary)
    temporary.replace(path)
