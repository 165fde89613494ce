"""A target: a reader of bytes that others made, and what must hold for whatever bytes it gets.

Either it takes them, and then every invariant holds, or it refuses them with an error of ours that has a message.
Anything else is a crash: another exception, a broken invariant, too much time, too much memory.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from fuzz.mutations import mutated


class BrokenContractError(AssertionError):
    """Bytes were taken, and an invariant does not hold."""


def hold(condition: bool, what: str) -> None:
    """Raises BrokenContractError unless the condition holds."""
    if not condition:
        raise BrokenContractError(what)


class Target(ABC):
    """One reader."""

    name: str
    refuses: tuple[type[Exception], ...]
    """The errors of ours with which it may refuse."""
    words: tuple[bytes, ...] = ()
    """What its inputs are made of, to be put in anywhere."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the target's own, for the files that it needs."""
        self.folder = folder

    @abstractmethod
    def seeds(self) -> Sequence[bytes]:
        """The corpus: small inputs that are taken, of every kind."""

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Read the bytes. Raises one of `refuses`, and BrokenContractError."""

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        """A variant of `data`; `others` is the corpus. Overridden where checksums would stop every blind change."""
        return mutated(dice, data, others, self.words)
