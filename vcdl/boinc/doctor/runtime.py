"""Check what the daemons need to run: a Python with its packages, and the weight store."""

import subprocess
from collections.abc import Iterator

from vcdl.boinc.doctor.finding import Finding, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.environment import PYTHON_VARIABLE
from vcdl.errors import StoreError
from vcdl.stores.exposure import exposures
from vcdl.stores.open import check_usable
from vcdl.stores.settings import URL_VARIABLE, StoreSettings

_IMPORTS = "import MySQLdb, keras, vcdl.boinc.daemons; print(keras.__version__)"
_IMPORT_S = 120
"""Seconds within which Python must import Keras and VCDL: enough for a cold disk."""


def check_python(installation: Installation) -> Iterator[Finding]:
    """Check the daemons' Python, which needs Keras (for the evaluator) and VCDL itself."""
    program = installation.environment.get(PYTHON_VARIABLE, "")
    cure = f"install VCDL there (docs/operator.md), or {installation.install_command} --python OTHER"
    if not program:
        yield failed(f"vcdl/environment names no {PYTHON_VARIABLE}", installation.install_command)
        return
    try:
        # Run the daemons' Python in a process of its own, because this doctor may run in another environment.
        done = subprocess.run(
            [program, "-c", _IMPORTS], cwd=installation.path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_IMPORT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        said = f"{program} took more than {_IMPORT_S} s to import Keras"
        yield warning(said, "run the doctor again when the machine is less busy")
        return
    except OSError as error:
        yield failed(f"{program} cannot be run: {error}", cure)
        return
    if done.returncode != 0:
        yield failed(f"{program}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:200]}", cure)
    else:
        yield ok(f"{program}, with Keras {done.stdout.strip().splitlines()[-1]}")


def check_weight_store(installation: Installation) -> Iterator[Finding]:
    """Check that the store given to install can be reached and is not open to others."""
    url = installation.environment.get(URL_VARIABLE, "")
    if not url:
        yield ok("none given: each job keeps its weights in its own folder")
        return
    try:
        settings = StoreSettings.parse(url, environment=installation.environment)
        # Check this before the store is used: an exposed store is worth a warning even if it does not answer.
        for exposure in exposures(settings):
            yield warning(exposure.what, exposure.cure)
        check_usable(settings)
    except StoreError as error:
        yield failed(f"{error}", f"start it, or {installation.install_command} --redis URL")
        return
    yield ok(f"{settings} keeps weights")


CHECKS = (check_python, check_weight_store)
