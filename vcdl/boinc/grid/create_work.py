"""Create workunits with BOINC's own `bin/create_work`, which writes hundreds of rows in one INSERT."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from vcdl.boinc.grid.credit import credit_of
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import APP, BoincProject
from vcdl.boinc.grid.workunit_rows import UNSENT
from vcdl.errors import GridError, GridUnavailable
from vcdl.job.schema import LATE_AFTER

INPUT_TEMPLATE = "vcdl_in.xml"
"""The input template of most workunits, in templates/."""
_TIMEOUT_S = 300.0
"""Seconds after which create_work is killed, so that a database that hangs does not hold up other jobs for ever."""
_LONG_S = 30
"""Seconds after which an unsent result counts as passed over by the scheduler (docs/decisions/009)."""
_FLOPS_BOUND = 1000
"""Multiple of the estimated operations after which BOINC aborts a task. BOINC converts operations to time by a client's
speed, which for an unmeasured client may be wrong by such a factor."""


@dataclass(frozen=True)
class WorkSettings:
    """The settings of all workunits of a job, for create_work and the templates."""

    job: str
    """Name of the job within the project, with which its workunits' names begin."""
    share: int
    """Share of the clients among the open jobs, at least 1. Not BOINC's priority, which would starve the others."""
    deadline_s: float
    """Upper limit of a task's deadline in seconds; while turnarounds are unknown, the deadline itself."""
    flops: float
    """Floating-point operations of one subtask: the basis of credit and of the client's time estimate."""
    memory_bytes: float
    disk_bytes: float
    """Most bytes in a client's slot folder: inputs, checkpoints and the update."""
    upload_bytes: int
    """Most bytes of an update; a larger one fails on the client."""
    layout: str = ""
    """Fingerprint of the model's layout."""
    offers_newest: bool = False
    """Whether clients may begin with newer weights than their workunit's."""
    queue_ahead: int | None = None
    """Workunits kept unsent; None: as many as the active hosts ask for."""
    shortest_deadline_s: float = 300.0
    """Lower limit of a task's deadline in seconds, however fast the other clients are."""
    late_after: float = LATE_AFTER
    """Multiple of the usual turnaround after which a workunit is late (`pacing > late_after`).

    Infinite: late workunits get no second host.
    """
    account: int | None = None
    """The only account whose hosts may have the workunits; None: all hosts."""


@dataclass(frozen=True)
class Creation:
    """A workunit to create, with inputs that are staged already."""

    name: str
    inputs: tuple[str, ...]
    """Physical names in the order of INPUT_FILES."""
    input_template: str = ""
    """Name of its own input template; empty: the template of all workunits."""


def create_work(
    project: BoincProject,
    settings: WorkSettings,
    result_template: str,
    priority: int,
    deadline_s: float,
    creations: Sequence[Creation],
) -> str:
    """Run BOINC's create_work once for all workunits, and return its output. Their inputs must be staged.

    create_work may lose rows and still end with status 0, so the caller must query which workunits exist.

    Args:
        project: The BOINC project.
        settings: The settings that all workunits share.
        result_template: Name of the result template in templates/.
        priority: BOINC's priority of the workunits.
        deadline_s: Their deadline in seconds.
        creations: The workunits, with inputs that are staged already.

    Raises:
        GridError: create_work failed.
        GridUnavailable: create_work did not end in time.
    """
    command = [
        # Let BOINC's own program write the rows: it knows the columns of its release, signs upload certificates where
        # the project requires them, and reads the templates. One call with --stdin creates a whole batch.
        str(project.bin / "create_work"), "--appname", APP,
        "--wu_template", f"templates/{INPUT_TEMPLATE}", "--result_template", f"templates/{result_template}",
        "--rsc_fpops_est", f"{settings.flops:.0f}", "--rsc_fpops_bound", f"{settings.flops * _FLOPS_BOUND:.0f}",
        "--rsc_memory_bound", f"{settings.memory_bytes:.0f}", "--rsc_disk_bound", f"{settings.disk_bytes:.0f}",
        "--delay_bound", f"{deadline_s:.0f}", "--priority", str(priority),
        "--credit", f"{credit_of(settings.flops):.9f}", "--stdin",
        *(() if settings.account is None else ("--target_user", str(settings.account))),
    ]  # fmt: skip
    lines = "".join(map(_line, creations))
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


def _line(creation: Creation) -> str:
    own = f"--wu_template templates/{creation.input_template} " if creation.input_template else ""
    return f"--wu_name {creation.name} {own}{' '.join(creation.inputs)}\n"


def priority_above_all(database: BoincDatabase) -> int:
    """Return BOINC's priority for work that must be sent before all unsent work of our app.

    It is for a job that has fewer clients than its share.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT MAX(priority) FROM result WHERE appid = %s AND server_state = %s", database.app_id, UNSENT
    )
    highest = rows[0][0]
    return 0 if highest is None else int(highest) + 1


def priority_of_new_work(database: BoincDatabase) -> int:
    """Return BOINC's priority for new workunits, chosen so that no older one waits for ever.

    Among results of equal priority the scheduler sends the first in the feeder's table, and the feeder puts new work
    into any free slot immediately. So a result far back in the table would wait as long as work is created. While a
    result has been unsent for more than _LONG_S, new work therefore ranks below all unsent work of our app. Otherwise
    the priority returns step by step to 0, the priority of other apps.

    Raises:
        GridError: The database cannot be read.
    """
    rows = database.execute(
        "SELECT MIN(priority), MIN(create_time) FROM result WHERE appid = %s AND server_state = %s",
        database.app_id,
        UNSENT,
    )
    lowest, oldest_s = rows[0]
    if lowest is None:
        return 0
    waits_long = oldest_s < time.time() - _LONG_S
    return int(lowest) - 1 if waits_long else min(0, int(lowest) + 1)
