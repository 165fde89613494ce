"""The profile of a run, cached in its journal, so that a long journal is summed only once."""

from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState
from vcdl.profile.stages import RunProfile


def kept_profile(journal: Journal) -> KeptState[RunProfile]:
    """Return the profile of a run as it was last stored; `advance` applies the events since.

    Raises:
        JournalError: The journal cannot be read.
    """
    return KeptState(journal, "profile", RunProfile(), code=("profile",)).load()
