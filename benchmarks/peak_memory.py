"""The most memory that a process and all below it had at once, sampled by a thread."""

import contextlib
import threading
from pathlib import Path
from types import TracebackType


class PeakMemory:
    """Sample the memory of a process and of all below it while the block runs.

    Pages that several of them share count once in all (PSS), so that the sum is what the machine has to give.
    """

    def __init__(self, pid: int, every_s: float) -> None:
        self.peak_bytes = 0
        self._pid, self._every_s = pid, every_s
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._sampler.join()

    def _sample(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, sum(map(_pss_bytes, _family(self._pid))))
            if self._over.wait(self._every_s):
                return


def _family(pid: int) -> set[int]:
    """Return a process and all below it."""
    found, parents = {pid}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _pss_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0
