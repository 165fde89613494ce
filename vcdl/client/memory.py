"""Find the memory that a new process can get: the machine's, or what a container's or a service's limit leaves."""

from collections.abc import Iterator
from pathlib import Path

_GROUPS = "sys/fs/cgroup"
_FORMS = (("memory.max", "memory.current", "inactive_file"),
          ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))  # fmt: skip
"""Control groups of version 2 and 1: the files with the limit and the used bytes, and the entry with the reclaimable
ones."""


def available_memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that a new process can get without swapping, or None if unknown (only Linux is supported)."""
    free = [free_bytes for group in _groups(root) if (free_bytes := _free_of(group)) is not None]
    if (free_bytes := number_in(root / "proc/meminfo", "MemAvailable:")) is not None:
        free.append(free_bytes * 1024)
    # A container sees the machine's memory in /proc, but is killed at its own limit.
    return min(free, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that may limit this process' memory, including their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 1 has a line for each controller, version 2 a single one without names.
        if controllers and "memory" not in controllers.split(","):
            continue
        for base in [root / _GROUPS / "memory"] if controllers else [root / _GROUPS, root / _GROUPS / "unified"]:
            here = base / path.lstrip("/")
            yield from (group for group in (here, *here.parents) if group.is_relative_to(base))


def _free_of(group: Path) -> int | None:
    """Return the free bytes below a group's limit, or None if it has no limit."""
    for limit, used, given_back in _FORMS:
        most_bytes, used_bytes = number_in(group / limit), number_in(group / used)
        if most_bytes is not None and used_bytes is not None:
            return max(0, most_bytes - used_bytes + (number_in(group / "memory.stat", given_back) or 0))
    return None


def number_in(path: Path, name: str = "") -> int | None:
    """Return the number in a file, or the one after the word `name` at the start of a line; None if there is none."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return next(int(words[bool(name)]) for words in lines if not name or words[:1] == [name])
    except (OSError, StopIteration, ValueError, IndexError):
        return None
