"""Measure the network stall of a job over a BOINC project, from some subtasks trained by the project's clients."""

import math
import time

from vcdl.errors import GridError
from vcdl.errors.backoff import wait_until
from vcdl.journal.observer import RunObserver
from vcdl.profile.stages import AWAY, OF_HOST, RunProfile
from vcdl.profile.stalls import Stall, network_stall
from vcdl.run.control import pause
from vcdl.run.folder import RunFolder
from vcdl.run.reading import is_finished, journal_of

_SUBTASKS = 8
"""Subtasks that are measured, enough for a median."""
_TIMEOUT_S = 900.0
"""Longest wait for these subtasks, after which those that have arrived are used."""


def network_of(folder: RunFolder, observer: RunObserver) -> Stall:
    """Wait until clients have trained some subtasks of a submitted job, pause the job, and return its network stall.

    Raises:
        GridError: No subtask was uploaded.
    """
    begun_s = time.monotonic()

    def has_enough() -> bool:
        count = _profile(folder).total().subtasks
        observer.phase(f"{count} of {_SUBTASKS} subtasks are back from the project's clients")
        return count >= _SUBTASKS or is_finished(folder)

    try:
        wait_until(has_enough, _TIMEOUT_S, every_s=2.0)
    finally:
        # In any case: a measured job must not stay on the volunteers' machines.
        pause(folder)
    profile = _profile(folder)
    if not profile.total().told:
        raise GridError(
            f"no client of the project returned a subtask in {time.monotonic() - begun_s:.0f} s: "
            "`vcdl project doctor` looks at the server, `vcdl hosts` at the clients"
        )
    return stall_of(profile)


def stall_of(profile: RunProfile) -> Stall:
    """Return the network stall of a run: the time of transfers during which a slot of the host waits.

    Transfers during which the host trains another subtask do not count. The journal does not record the hosts' numbers
    of slots, so for each host the lowest number is assumed that explains how much it trained.
    """
    sums, slots_s = profile.total(), 0.0
    for host, use in profile.hosts.items():
        # The journal does not record the slots of a host. They follow from how much it trained in its time.
        own, at_work_s = profile.total([host]), use.active_s - use.idle_s
        if at_work_s > 0:
            slots_s += at_work_s * math.ceil(own.subtasks * own.mean_s(*OF_HOST) / at_work_s)
    on_host_s = sums.mean_s(*OF_HOST)
    waited_s = slots_s / max(1, sums.subtasks) - on_host_s
    # At most the transfers themselves, as a host may also wait for new work.
    return network_stall(min(max(0.0, waited_s), sums.mean_s(AWAY)), on_host_s)


def _profile(folder: RunFolder) -> RunProfile:
    with journal_of(folder) as journal:
        return RunProfile.of(() if journal is None else journal.stream())
