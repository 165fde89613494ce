"""The kind of a run: who drives its loop, and what follows from that for a person.

One entry of `RUN_KINDS` is all that the rest of the code knows of a kind of run. Its name is written into the run's
folder before anything else, so the folder shows its kind whenever the process that makes it is killed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # help must not import what reads job files
    from vcdl.job.trust import Trust


@dataclass(frozen=True)
class RunKind:
    """One kind of run."""

    name: str
    driver: str | None
    """The function `module:name` that runs a folder's job in the calling process; None: `vcdl resume` drives
    nothing.
    """
    resume_hint: str
    """How a person continues an unfinished run, with a place for its folder; a sentence without its stop."""
    trust: "Trust"
    """Whose machines train its jobs, where the job file does not say."""
    command: str
    """The command that begins such a run, after `vcdl`."""
    has_daemons: bool = False
    """Daemons drive the run: a session outlives each of them, and a run that nobody drives waits for them."""
    has_wall_clock: bool = True
    """False: the journal's times are those of a simulation."""
    environment: str = ""
    """The file in which the environment of its processes is set; empty: the shell's."""
    servers_refused: str = ""
    """Why `vcdl assimilator` adds no parameter server, and what to do instead; empty: it may."""

    def how_to_resume(self, folder: object) -> str:
        """The hint for a run's folder, as it is shown."""
        return self.resume_hint.format(folder=folder)


LOCAL = RunKind(
    "local",
    driver="vcdl.local.run:run_locally",
    resume_hint="`vcdl resume {folder}` goes on",
    trust="own",
    command="run",
)
BOINC = RunKind(
    "boinc",
    driver=None,
    resume_hint="`vcdl resume {folder}` goes on",
    trust="strangers",
    command="submit",
    has_daemons=True,
    environment="vcdl/environment of the project",
    servers_refused=(
        "is the job of a BOINC project, whose daemons assimilate its uploads: for more of them, give "
        "`vcdl_assimilator` further entries in the project's config.xml (docs/operator.md), then bin/stop and bin/start"
    ),
)
SIMULATED = RunKind(
    "simulated",
    driver=None,
    resume_hint="`vcdl simulate` with the same settings starts it again",
    trust="strangers",
    command="simulate",
    has_wall_clock=False,
    servers_refused=(
        "is a simulation, which assimilates its uploads in its own process: there is nothing to add; "
        "`vcdl run` with `--set grid.servers=0` begins a run that can share them"
    ),
)

RUN_KINDS = {kind.name: kind for kind in (LOCAL, BOINC, SIMULATED)}
"""Every kind of run, by the name in its folder."""
