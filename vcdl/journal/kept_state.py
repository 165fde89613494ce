"""Computed states stored in a journal, so that a long journal does not have to be read from its beginning.

A stored state is a cache and never a source (decision 026). It is used only if the code that computed it and its
settings are unchanged and its last event is in the journal; otherwise all events are applied again from the first. It
is stored in the journal's own file, so a copy or a backup of one includes the other. Readers without permission to
write store theirs in separate files (vcdl.journal.reader_state).

A process may be killed at any moment: the state that it stored is some thousand events behind at most, and these are
applied again. Nothing is lost, because exactly-once depends on the store's records and on the keys of events.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from vcdl.files.version import __version__
from vcdl.journal.events import Recorded
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal
from vcdl.journal.packing import pack, unpack
from vcdl.journal.reader_state import load_reader_state, save_reader_state

_PACKAGE = Path(__file__).parents[1]
_FOLDING = ("journal", "wire/workunit.py", "errors/refusal.py")
"""Files and folders of vcdl whose code determines every state; a change in them invalidates all stored states."""
EVENTS = 10_000
"""Events after which a state is saved again: applying that many takes a tenth of a second."""
_BYTES_OF_AN_EVENT = 200
"""Least bytes of an event in the journal, so that all stored states together are not larger than the journal."""


class Folding(Protocol):
    """A state that depends only on a journal's events: a dataclass whose fields msgspec can encode."""

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event."""
        ...


F = TypeVar("F", bound=Folding)


class KeptState(Generic[F]):
    """A computed state and the id of the last event that was applied to it.

    Call `load` to start from the stored state, `advance` to apply the events since, and `save` to store it again. A
    kill between these loses nothing, as the events are applied again.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        new: F,
        *,
        settings: str = "",
        code: tuple[str, ...] = (),
        without: int | None = None,
    ) -> None:
        """Prepare the state; `load` reads the cache.

        Args:
            journal: The journal with the events.
            name: The name under which the state is stored.
            new: The state before the first event.
            settings: Text of everything that the state depends on apart from events; a change invalidates the cache.
            code: Files and folders of the package that compute the state; a change in them invalidates the cache.
            without: Load deques with this maximum length as empty, to save memory. Such a state is incomplete, so it is
                never saved. None: load everything.
        """
        self._without = without
        self.state = new
        self.last_id = 0
        self._journal = journal
        self._name = name
        # This is a hash of the sources, not a number that somebody has to increment: forgetting that would give wrong
        # states.
        self._form = f"{_fingerprint((*_FOLDING, *code))} {hashlib.sha256(settings.encode()).hexdigest()}"
        self._kept_id = 0
        self._wait = EVENTS

    def load(self) -> Self:
        """Replace the state by the stored one if that is usable; return self.

        Raises:
            JournalError: The journal cannot be read.
        """
        kept = [self._journal.load_state(self._name, self._form)]
        # A process that writes the journal never starts from a reader's file, which is outside the journal's
        # transaction and may belong to an older copy.
        if not self._journal.may_write:
            kept.append(load_reader_state(self._journal, self._name, self._form))
        # Try the newest state first, which leaves the fewest events to apply.
        for last_id, packed in sorted((one for one in kept if one is not None), reverse=True):
            try:
                self.state = unpack(type(self.state), packed, self._without)
            except ValueError:
                continue  # damaged: the events are applied instead
            self.last_id = self._kept_id = last_id
            self._wait = _wait(packed)
            break
        return self

    def follow(self, recorded: Recorded) -> None:
        """Apply the next journal event; an event that the state already contains is skipped."""
        if recorded.id > self.last_id:
            self.state.follow(recorded)
            self.last_id = recorded.id

    def advance(self, noted: Callable[[Recorded], object] = id, *, save: bool = False) -> F:
        """Apply the journal's new events, and return the state.

        Args:
            noted: Called with each new event after it was applied; the result is ignored.
            save: Whether to store the state for the next reader if many events are new since it was last stored.

        Raises:
            JournalError: The journal cannot be read.
        """
        for recorded in self._journal.stream(self.last_id):
            self.follow(recorded)
            noted(recorded)
        if save:
            self.save()
        return self.state

    def save(self, *, at_once: bool = False) -> bool:
        """Store the state if many events are new since it was last stored; return whether it was stored.

        Args:
            at_once: Store it if even one event is new.

        Raises:
            JournalError: The journal cannot be written.
        """
        wait = 1 if at_once else self._wait
        # Never save a state that was read without its long lists, because the next process would treat it as complete.
        if self.last_id < self._kept_id + wait or self._without is not None:
            return False
        packed = pack(self.state)
        if self._journal.may_write:
            self._journal.keep_state(self._name, self._form, self.last_id, packed)
        else:
            save_reader_state(self._journal, self._name, self._form, self.last_id, packed)
        self._kept_id = self.last_id
        self._wait = _wait(packed)
        return True


def kept_history(journal: Journal) -> KeptState[JobHistory]:
    """Return the history of a job as it was last stored; `advance` applies the events since.

    Raises:
        JournalError: The journal cannot be read.
    """
    return KeptState(journal, "history", JobHistory()).load()


def keep_history(journal: Journal, history: JobHistory, last_id: int) -> None:
    """Store the history of a job in its journal, so that later readers do not apply its events again.

    Args:
        journal: The journal.
        history: The history.
        last_id: The id of the last event in the history.

    Raises:
        JournalError: The journal cannot be written.
    """
    kept = KeptState(journal, "history", history)
    kept.last_id = last_id
    kept.save(at_once=True)


def _wait(packed: bytes) -> int:
    """Return after how many new events a state of this size is stored again."""
    # A large state is saved less often, so that the time spent on saving stays proportional to the journal.
    return max(EVENTS, len(packed) // _BYTES_OF_AN_EVENT)


@cache
def _fingerprint(code: tuple[str, ...]) -> str:
    """Return a hash of code files and vcdl's version, which differs once the code that computes a state has changed."""
    # The hash includes the version, for an installation that has no sources to hash.
    digest = hashlib.sha256(__version__.encode())
    for name in code:
        path = _PACKAGE / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            if file.is_file():  # an installation without sources has its version
                digest.update(file.read_bytes())
    return digest.hexdigest()
