"""The settings that an operator gave at installation: PROJECT/vcdl/environment, NAME=VALUE a line, read by the project's user only.

The daemons' launchers read the same file, so that a job is prepared in the store that its daemons will look in.
"""

import os
import shlex

from vcdl.errors import GridError
from vcdl.grids.boinc.project_folder import BoincProject


def use_environment(project: BoincProject) -> None:
    """Take over the project's settings; they win over this process's own, as in the daemons' launchers. Raises GridError."""
    path = project.path / "vcdl" / "environment"
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise GridError(f"{path} cannot be read ({error.strerror}): run this as the project's user") from error
    for line in lines:
        name, sign, value = line.strip().removeprefix("export ").partition("=")
        if sign and not name.startswith("#"):
            os.environ[name.strip()] = "".join(shlex.split(value))
