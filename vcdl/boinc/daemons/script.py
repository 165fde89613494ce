"""The common part of the scripts that BOINC's script_validator runs, `vcdl_validate` and `vcdl_compare`.

Their launchers ask the resident checker first (vcdl.boinc.daemons.checker), and start the whole program only when it
does not answer.

To BOINC everything but 0 and 3 is a refusal, a Python that cannot start (1) as well. So the launchers turn all but 0
and 10 into 3, upon which BOINC asks again. That may spend one of the few results that a workunit may have, hence the
tries.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.daemons.daemon import add_project_option
from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.errors import VcdlError

ACCEPTED, REFUSED, LATER = 0, 10, 3
_TRIES = 5
_BETWEEN_TRIES_S = 2.0


@dataclass(frozen=True)
class Verdict:
    """The answer to BOINC about uploads."""

    code: int
    """The script's exit code."""
    why: str = ""
    """The reason, for the validator's log."""


def refused(why: str) -> Verdict:
    return Verdict(REFUSED, why)


def run_script(
    program: str,
    purpose: str,
    files: int,
    judge: Callable[[OpenedRuns, Sequence[Path]], Verdict],
    arguments: list[str],
) -> int:
    """Judge so many files as the command line names; returns the exit code.

    `judge` raises VcdlError or OSError when this machine cannot look at the files, and is then tried again.
    """
    parser = argparse.ArgumentParser(prog=program, description=purpose)
    parser.add_argument("files", type=Path, metavar="FILE", nargs=files)
    add_project_option(parser)
    options = parser.parse_args(arguments)
    for tries_left in reversed(range(_TRIES)):
        try:
            with closing(OpenedRuns(BoincProject.at(options.project_dir))) as runs:
                verdict = judge(runs, options.files)
        except (VcdlError, OSError) as error:
            name = options.files[0].name
            print(f"{name} could not be looked at: {error}; {tries_left} tries left", file=sys.stderr)
            time.sleep(_BETWEEN_TRIES_S if tries_left else 0)
        else:
            if verdict.why:
                print(verdict.why, file=sys.stderr)
            return verdict.code
    return LATER
