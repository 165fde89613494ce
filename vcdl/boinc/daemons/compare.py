"""`vcdl_compare FILE1 FILE2`: BOINC's script_validator runs it for two results of a workunit that were both accepted.

    exit 0    the two are the same work, or this workunit is not among those that two hosts train
    exit 10   they are not: BOINC has a third host train it, and gives credit to those that agree
    exit 3    they could not be looked at, after some tries

`trust > redundancy` in a job file is the share of workunits that two hosts train. Two results of the same host say
nothing about each other, and a partial one nothing about a whole one. They are not the same work.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from vcdl.boinc.daemons.opened_runs import OpenedRuns
from vcdl.boinc.daemons.script import ACCEPTED, Verdict, refused, run_script
from vcdl.boinc.grid.redundancy import is_made_twice
from vcdl.boinc.grid.results import host_of, result_name, workunit_and_result
from vcdl.checks import Refused
from vcdl.checks.agreement import TOLERANCE, disagreement
from vcdl.errors import WorkunitError
from vcdl.wire.workunit import WorkunitName


def compare(runs: OpenedRuns, files: Sequence[Path]) -> Verdict:
    """Compare two uploads of a workunit.

    Raises VcdlError or OSError when this machine cannot look at them.
    """
    first, second = files
    (workunit, one), (other_workunit, other) = map(workunit_and_result, files)
    try:
        name = WorkunitName.parse(workunit)
    except WorkunitError as error:
        return refused(f"{first.name}: {error}")
    if other_workunit != workunit:
        return refused(f"{first.name} and {second.name} are of two workunits")
    run = runs.of(runs.project.run_folder(name.job))
    base = run.folder.snapshot(name.base_version)
    if not is_made_twice(workunit, run.job.trust.redundancy, run.prepared.store_key) or not base.exists():
        return Verdict(ACCEPTED)  # a late result of a workunit that needs one, or that is over
    if _host(runs, first) == _host(runs, second):
        return refused(f"{workunit}: both results are of one host")
    check = run.upload_check()
    try:
        if any(check.read_header(file, workunit).fraction < 1 for file in files):
            return refused(f"{workunit}: one of the results is partial")
        apart = disagreement(first, second, base, check.up)
    except Refused as error:
        return refused(f"{workunit}: {error.detail}")
    if apart.is_rounding:
        return Verdict(ACCEPTED)
    return refused(
        f"{workunit}: results {one} and {other} differ by {apart.trained:.2g} of their step in the trained weights and "
        f"by {apart.rest:.2g} in the others; {TOLERANCE:g} is rounding"
    )


def _host(runs: OpenedRuns, file: Path) -> int | str:
    """The host of an upload; the file's name for one whose result is not in the database. Raises GridError."""
    host = host_of(runs.database, result_name(file))
    return file.name if host is None else host


def main() -> int:
    """Compare two results."""
    return run_script("vcdl_compare", __doc__.partition("\n")[0], 2, compare, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
