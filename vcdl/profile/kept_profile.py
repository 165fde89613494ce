"""The profile of a run, begun from what was kept beside its journal, so that nobody adds up a long one twice."""

from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState
from vcdl.profile.stages import RunProfile


def kept_profile(journal: Journal) -> KeptState[RunProfile]:
    """The profile, begun from what is kept. Raises JournalError."""
    return KeptState(journal, "profile", RunProfile(), code=("profile",)).load()
