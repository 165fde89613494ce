"""The kind of a run: who drives its loop, and how a person starts and resumes it.

The rest of the code knows a kind of run only by its entry in `RUN_KINDS`; other packages add kinds by the entry point
`vcdl.grids`. The kind's name is written into the run's folder before anything else, so a folder has its kind even if
the process that creates it is killed.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcdl.errors import PluginError
from vcdl.files.plugins import Parts

if TYPE_CHECKING:  # help must not import what reads job files
    from vcdl.job.trust import Trust


@dataclass(frozen=True)
class RunKind:
    """One kind of run, such as `local` or `boinc`."""

    name: str
    driver: str | None
    """The function `module:name` that runs a folder's job in this process, or None if daemons or others drive it."""
    resume_hint: str = "`vcdl resume {folder}` continues"
    """How to continue an unfinished run, with a placeholder for its folder, as a clause without a full stop."""
    trust: "Trust" = "own"
    """Whose machines train its jobs, if the job file does not set it."""
    command: str = ""
    """The command that starts such a run, after `vcdl`. If empty, this is `run --grid NAME`."""
    has_workers: bool = False
    """Whether worker processes of this machine train its subtasks."""
    runs_code: bool = False
    """Whether its clients run on the submitter's own machines, and so may run the code of a job (`model > code`)."""
    has_daemons: bool = False
    """Whether daemons of a project drive the run. It then waits while they do not run, and does not count as killed."""
    has_wall_clock: bool = True
    """Whether the journal's times are real time and not those of a simulation."""
    environment: str = ""
    """The file that sets the environment of its processes, or an empty string if the shell sets it."""

    def how_to_resume(self, folder: object) -> str:
        """Return the hint for a run's folder, as users see it."""
        return self.resume_hint.format(folder=folder)

    @property
    def begun_by(self) -> str:
        """The command that starts such a run, after `vcdl`."""
        return self.command or f"run --grid {self.name}"


LOCAL = RunKind("local", driver="vcdl.local.run:run_locally", command="run", has_workers=True, runs_code=True)
POOL = RunKind("pool", driver="vcdl.pool.run:run_over_pilots", command="pool", runs_code=True)
BOINC = RunKind(
    "boinc",
    driver=None,
    trust="strangers",
    command="submit",
    has_daemons=True,
    environment="vcdl/environment of the project",
)
SIMULATED = RunKind(
    "simulated",
    driver=None,
    resume_hint="`vcdl simulate` with the same settings starts it again",
    trust="strangers",
    command="simulate",
    has_wall_clock=False,
)


def _wrong(name: str, found: object) -> str | None:
    """Return what is wrong with a plugin's entry of this name, or None if it is a valid kind of run."""
    if not isinstance(found, RunKind):
        return "is not a vcdl.run.kind.RunKind"
    # A run's kind is looked up by the name in its folder, so both must agree.
    return None if found.name == name else f"calls itself {found.name!r}: both names must be the same"


RUN_KINDS: Parts[RunKind] = Parts("grid", _wrong)
"""Every kind of run, by the name in its folder."""


def usable_kinds() -> Iterator[RunKind]:
    """Yield the kinds of run except those of plugins that cannot be imported. These raise PluginError when used."""
    for name in RUN_KINDS:
        with suppress(PluginError):
            yield RUN_KINDS[name]


def driven_kind(name: str) -> RunKind:
    """Return the kind of run that `vcdl run --grid NAME` starts.

    Raises:
        PluginError: There is no such kind, or its package fails.
    """
    if name not in RUN_KINDS:
        known = ", ".join(kind.name for kind in usable_kinds() if kind.driver is not None)
        raise PluginError(f"there is no grid {name!r}: known are {known}; {RUN_KINDS.how_to_add}")
    kind = RUN_KINDS[name]
    if kind.driver is None:
        raise PluginError(f"`vcdl run` cannot drive a run on the grid {name}: start one with `vcdl {kind.begun_by}`")
    return kind
