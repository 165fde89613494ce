"""The steps of an installation, and the runner that carries them out.

Each step can check whether it is done. A step that was killed half way fails its check, and is repeated. So a run may
be killed at any moment, and the next run completes it.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.project import files
from vcdl.errors import ServerError


@dataclass(frozen=True)
class ServerStep:
    """A condition that a server must meet: `is_so` checks it, and `make_so` makes it true."""

    what: str
    is_so: Callable[[], bool]
    make_so: Callable[[], None]


def carry_out(steps: Iterable[ServerStep], *, dry_run: bool = False) -> Iterator[str]:
    """Carry out the steps that are not done, in order, while the caller iterates.

    Yields a line for each step: `unchanged`, `to do` (in a dry run) or `done`.

    Args:
        steps: The steps.
        dry_run: Whether only to report what would be done.

    Raises:
        ServerError: A step's check still fails after its action. Errors of a step pass through.
    """
    for step in steps:
        if step.is_so():
            yield f"unchanged {step.what}"
        elif dry_run:
            yield f"to do     {step.what}"
        else:
            begun_s = time.monotonic()
            step.make_so()
            # Check again, because programs of BOINC and Debian may exit with 0 after errors.
            if not step.is_so():
                raise ServerError(
                    f"{step.what}: the step ran, and its check still fails; look at the machine, and run this again"
                )
            yield f"done      {step.what} ({time.monotonic() - begun_s:.0f} s)"


def file_step(what: str, path: Path, content: bytes) -> ServerStep:
    """Return a step that writes a file unless it has this content."""
    return ServerStep(f"{what} in {path}", lambda: files.read(path) == content, lambda: files.write(path, content))


def always(what: str, do: Callable[[], object]) -> ServerStep:
    """Return a step that every run repeats, because it is cheap, or nothing shows whether it is done."""
    done: list[bool] = []

    def make_so() -> None:
        do()
        done.append(True)

    return ServerStep(what, lambda: bool(done), make_so)
