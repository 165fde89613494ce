"""Install the packages of a runtime from a lock file, with uv, for the runtime's platform; none of their code runs."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from vcdl.boinc.runtime.platforms import Platform
from vcdl.errors import GridError
from vcdl.files.children import python_command
from vcdl.files.extras import require
from vcdl.files.shipped import shipped_folder

_NOT_ON_CLIENTS = (
    # TensorFlow requires them to display training (tensorboard), to build itself (libclang), or to install packages. A
    # client does none of that.
    *("libclang", "markdown", "markupsafe", "pillow", "setuptools", "tensorboard", "tensorboard-data-server"),
    *("werkzeug", "wheel"),
)


def lock_of(backend: str, gpu: bool) -> Path:
    """Return the lock file of a backend's runtime, for every platform and Python; `make lock` writes it."""
    return shipped_folder("wrappers") / "runtime" / f"{backend}{'-gpu' if gpu else ''}.lock"


def install(lock: Path, platform: Platform, minor: str, folder: Path) -> dict[str, str]:
    """Install the packages of a lock file into a folder, checking hashes; return their versions, keyed by name.

    Raises:
        GridError: uv is missing or failed.
    """
    require("runtime", "uv")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as excludes:
        excludes.write("\n".join(_NOT_ON_CLIENTS))
        excludes.flush()
        command = [
            # Without the builder's configuration, and without sdists: an sdist runs code when it is built, and would be
            # built for this machine's platform.
            *python_command("uv", "pip", "install"), "--quiet", "--no-config", "--no-deps", "--require-hashes",
            "--only-binary=:all:", "--link-mode=copy", f"--python={sys.executable}", f"--python-version={minor}",
            f"--python-platform={platform.wheels}", f"--excludes={excludes.name}", f"--target={folder}",
            f"--requirements={lock}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-600:]
        raise GridError(f"uv could not install the packages for {platform.name}: {said}")
    shutil.rmtree(folder / "bin", ignore_errors=True)  # programs
    (folder / ".lock").unlink(missing_ok=True)
    found = (path.stem.split("-") for path in folder.glob("*.dist-info"))
    return {name.replace("_", "-").lower(): version for name, version in sorted(found)}
