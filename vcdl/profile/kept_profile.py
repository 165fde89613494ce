"""The profile of a run, started from the cache in its journal, so that a long one is added up once."""

from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import KeptState
from vcdl.profile.stages import RunProfile


def kept_profile(journal: Journal) -> KeptState[RunProfile]:
    """Return the profile, starting from the cache. Raises JournalError."""
    return KeptState(journal, "profile", RunProfile(), code=("profile",)).load()
