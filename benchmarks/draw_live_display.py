"""The picture of the live display in README.md: a real run, drawn at one moment of it.

`python benchmarks/draw_live_display.py [JOB.yaml] [--kill UPDATES] [--at UPDATES] [-o FILE.svg]` runs the job's
own loop and workers in a temporary folder, kills a worker with signal 9 after so many updates, pauses the run
later, and writes what `vcdl run` showed then. The SVG names no font or file of another host.
"""

import argparse
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from vcdl.job import load_job, save_job
from vcdl.journal.events import Recorded, UpdateApplied
from vcdl.journal.observer import RunningTask
from vcdl.local.run import run_locally
from vcdl.report.display import LiveDisplay
from vcdl.report.progress import RunGoal
from vcdl.run.folder import RunFolder, RunLock

_ROOT = Path(__file__).resolve().parents[1]
_WIDTH = 92
"""Characters: the longest line of the display, and a margin."""
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)


class Camera(LiveDisplay):
    """A display that draws itself once, when the workers are in the middle of subtasks, and then asks the run
    to pause.
    """

    def __init__(self, goal: RunGoal, console: Console, folder: RunFolder, kill: int, at: int) -> None:
        super().__init__(goal, console)
        self._screen, self._folder, self._kill, self._at = console, folder, kill, at
        self._applied = 0
        self.is_done = False

    def events(self, events: Sequence[Recorded]) -> None:
        super().events(events)
        self._applied += sum(isinstance(recorded.event, UpdateApplied) for recorded in events)

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        super().tasks(running, waiting)
        is_busy = len(running) > 1 and all(0.15 < task.fraction < 0.95 for task in running)
        if self._applied >= self._kill > 0 and is_busy:
            self._kill = 0
            os.kill(_workers()[0], signal.SIGKILL)
        elif self._applied >= self._at and is_busy and not self.is_done:
            self._screen.print(self.render())
            self.is_done = True
            self._folder.stop_request.touch()


def _workers() -> list[int]:
    """The worker processes of this one."""
    pgrep = ["pgrep", "-P", str(os.getpid()), "-f", "vcdl.client.worker"]
    return [int(pid) for pid in subprocess.check_output(pgrep, text=True).split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", nargs="?", type=Path, default=_ROOT / "examples" / "first_job.yaml")
    parser.add_argument("--kill", type=int, default=62, help="updates after which a worker is killed")
    parser.add_argument("--at", type=int, default=132, help="updates after which the picture is taken")
    parser.add_argument("-o", "--output", type=Path, default=_ROOT / "docs" / "images" / "live_display.svg")
    arguments = parser.parse_args()
    job = load_job(arguments.job)
    console = Console(
        file=StringIO(), record=True, force_terminal=True, color_system="truecolor", width=_WIDTH, highlight=False,
        markup=False,
    )  # fmt: skip
    console.print(f"$ vcdl run {arguments.job.name}")
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / job.name)
        folder.create()
        camera = Camera(RunGoal.of(job), console, folder, arguments.kill, arguments.at)
        with RunLock(folder):
            save_job(job, folder.job_file)
            run_locally(folder, camera)
    if not camera.is_done:
        raise SystemExit("the run ended before the picture was taken: give a smaller --at")
    console.save_svg(str(arguments.output), title="VCDL", code_format=_FONT_FACE.sub("", CONSOLE_SVG_FORMAT))
    print(arguments.output)


if __name__ == "__main__":
    main()
