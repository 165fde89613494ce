"""What killed processes left unfinished in a run's folder: swept when the run is taken up again."""

import contextlib
import os
import re
from pathlib import Path

from vcdl.run.folder import RunFolder

_UNFINISHED = re.compile(r"\..+\.(?P<pid>\d+)\.(tmp|h5)")
"""A file that is being written (vcdl.weights.write_weights, vcdl.whole_file, vcdl.grids.slots), with the process that writes it."""


def sweep(folder: RunFolder) -> None:
    """Remove files whose writer has died before they were whole; what another process writes just now is left alone."""
    for part in (folder.snapshots, folder.downloads, folder.slots, folder.uploads, folder.kept_uploads):
        for path in part.glob(".*"):
            match = _UNFINISHED.fullmatch(path.name)
            if match is not None and not _is_running(int(match["pid"])):
                with contextlib.suppress(OSError):
                    path.unlink()


def _is_running(pid: int) -> bool:
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()
