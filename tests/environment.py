"""The environment that tests run in, whatever machine and user they run on."""

import os
import tempfile
from pathlib import Path

REAL_SERVERS = ("VCDL_BOINC_PROJECT_DIR", "VCDL_AWS_SMOKE_REGION", "VCDL_GCP_SMOKE_PROJECT", "VCDL_BOINC_TREE")
"""Each asks for tests against somebody's real server, with the logins that lie on this machine."""

_FOLDER = "VCDL_TESTS_FOLDER"
_DATA_SETS = "VCDL_DATA_DIR"
"""Files to read, and the same ones everywhere."""

_PREFIXES = (
    "VCDL_", "AWS_", "GOOGLE_", "CLOUDSDK_", "GCE_", "BOINC_", "MYSQL_", "REDIS", "KERAS_", "TF_", "XDG_", "LC_",
)  # fmt: skip
_NAMES = ("LANGUAGE", "TZ", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def leave_this_machine_out(cache: Path) -> tempfile.TemporaryDirectory[str] | None:
    """Give this process, and all that it starts, settings of their own and an empty home, which is to be
    removed at the end.

    Matplotlib keeps its list of fonts in `cache`: it takes seconds to make.
    """
    if any(name in os.environ for name in REAL_SERVERS):
        return None
    for name in list(os.environ):
        if name != _DATA_SETS and (name.startswith(_PREFIXES) or name in _NAMES):
            del os.environ[name]
    os.environ |= {"LANG": "C.UTF-8", "MPLCONFIGDIR": str(cache)}
    os.umask(0o022)
    home = tempfile.TemporaryDirectory(prefix="vcdl-home-")
    os.environ["HOME"] = os.environ[_FOLDER] = home.name
    return home


def folder_of_this_run() -> Path | None:
    """A folder for what all workers of pytest share until the last test; None where tests have the user's own home."""
    return Path(os.environ[_FOLDER]) if _FOLDER in os.environ else None
