"""What our daemons run with: Python and the weight store."""

import subprocess
from collections.abc import Iterator

from vcdl.errors import StoreError, StoreLost
from vcdl.project.doctor.finding import Finding, failed, ok
from vcdl.project.doctor.patient import Patient
from vcdl.project.environment import PYTHON_VARIABLE
from vcdl.stores.open import open_store
from vcdl.stores.settings import URL_VARIABLE, StoreSettings

_IMPORTS = "import MySQLdb, keras, vcdl.daemons; print(keras.__version__)"
_IMPORT_S = 120


def python(patient: Patient) -> Iterator[Finding]:
    """It must have Keras (the evaluator's) and VCDL itself."""
    program = patient.environment.get(PYTHON_VARIABLE, "")
    cure = f"pip install 'vcdl[cpu,server]' there, or {patient.install_command} --python OTHER"
    if not program:
        yield failed("python", f"vcdl/environment names no {PYTHON_VARIABLE}", patient.install_command)
        return
    try:
        done = subprocess.run(
            [program, "-c", _IMPORTS], cwd=patient.path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_IMPORT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        yield failed("python", f"{program} cannot be run: {error}", cure)
        return
    if done.returncode != 0:
        yield failed(
            "python", f"{program}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:200]}", cure
        )
    else:
        yield ok("python", f"{program}, with Keras {done.stdout.strip().splitlines()[-1]}")


def weight_store(patient: Patient) -> Iterator[Finding]:
    """Redis or MariaDB, when one was given to install."""
    url = patient.environment.get(URL_VARIABLE, "")
    if not url:
        yield ok("weight store", "none given: each job keeps its weights in its own folder")
        return
    try:
        settings = StoreSettings.parse(url, environment=patient.environment)
        store = open_store(settings, "vcdl-doctor", 1)
        try:
            store.version()
        except StoreLost:  # it answered, and has no weights of such a job
            pass
        finally:
            store.close()
    except StoreError as error:
        yield failed("weight store", f"{error}", f"start it, or {patient.install_command} --redis URL")
        return
    yield ok("weight store", f"{settings} answers")


CHECKS = (python, weight_store)
