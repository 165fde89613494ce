"""What a killed process left half-written goes; what another one writes just now stays."""

import os
import subprocess
import sys
from pathlib import Path

from vcdl.run.folder import RunFolder
from vcdl.run.leftovers import sweep


def test_half_written_weights_of_dead_processes_are_swept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.create()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    snapshot = folder.snapshot(3)
    left, own, alive = (
        snapshot.with_name(f".{snapshot.name}.{pid}.tmp") for pid in (dead.pid, os.getpid(), os.getppid())
    )
    for path in (snapshot, left, own, alive):
        path.write_bytes(b"half")
    sweep(folder)
    assert sorted(folder.snapshots.iterdir()) == sorted([snapshot, alive]), (
        "a process has written nothing before it begins"
    )
