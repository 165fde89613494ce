"""Workunits through BOINC's own `bin/create_work`, which writes hundreds of rows in one INSERT."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.errors import GridError, GridUnavailable
from vcdl.grids.boinc.project_folder import APP, BoincProject
from vcdl.grids.boinc.work_settings import WorkSettings

_TIMEOUT_S = 300.0
_FLOPS_BOUND = 1000
"""Times the estimate: a client that was never measured may be off by as much, and the deadline ends what hangs."""


@dataclass(frozen=True)
class Creation:
    """A workunit to be made: its inputs are staged."""

    name: str
    inputs: tuple[str, ...]
    """Physical names, in the order of INPUT_FILES."""


def create_work(
    project: BoincProject,
    settings: WorkSettings,
    input_template: str,
    result_template: str,
    priority: int,
    creations: Sequence[Creation],
) -> str:
    """Run create_work over them; returns what it said, as it may fail and say that it did not (exit status 0).

    It loses rows without a word, and refuses a whole INSERT for one name that exists: look in the database for which are there.
    Raises GridError when it cannot be run, GridUnavailable when it does not come to an end.
    """
    command = [
        str(project.bin / "create_work"), "--appname", APP,
        "--wu_template", f"templates/{input_template}", "--result_template", f"templates/{result_template}",
        "--rsc_fpops_est", f"{settings.flops:.0f}", "--rsc_fpops_bound", f"{settings.flops * _FLOPS_BOUND:.0f}",
        "--rsc_memory_bound", f"{settings.memory_bytes:.0f}", "--rsc_disk_bound", f"{settings.disk_bytes:.0f}",
        "--delay_bound", f"{settings.deadline_s:.0f}", "--priority", str(priority), "--stdin",
    ]  # fmt: skip
    lines = "".join(f"--wu_name {item.name} {' '.join(item.inputs)}\n" for item in creations)
    try:
        done = subprocess.run(
            command, cwd=project.path, input=lines, capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise GridUnavailable(
            f"create_work did not end within {_TIMEOUT_S:g} s: is the database overloaded?"
        ) from error
    except OSError as error:
        raise GridError(
            f"{command[0]} cannot be run: {error.strerror}; {project.path} must be a BOINC project, run as its user"
        ) from error
    return " ".join(f"{done.stdout} {done.stderr}".split())[-500:]
