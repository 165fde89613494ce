"""Read and write a user's note about a run: a text and tags, in note.json. It has no effect on training."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from vcdl.errors import JobError, printable
from vcdl.files.atomic import whole_file

_TAG = re.compile(r"[\w.+-]{1,40}")
_MOST_TAGS = 20
"""Tags of a run, so that a row of the list stays readable."""
_MOST_CHARACTERS = 2000
"""Characters of a note, enough for a paragraph."""


@dataclass(frozen=True)
class RunNote:
    """A user's note about a run."""

    text: str = ""
    tags: tuple[str, ...] = ()

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the note of a run; empty if there is none or the file cannot be read."""
        try:
            with file.open("rb") as opened:
                # Bounded, because another program may have written the file, and every page of the run list reads it.
                found = json.loads(opened.read(_MOST_CHARACTERS * 8))
            return cls(printable(str(found["text"])), tuple(printable(str(tag)) for tag in found["tags"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def with_changes(self, text: str | None, tags: Sequence[str], untags: Sequence[str]) -> "RunNote":
        """Return a changed note; this one stays as it is.

        Args:
            text: The new text; None to keep the present one.
            tags: Tags to add.
            untags: Tags to remove.

        Raises:
            JobError: A tag or the text is not valid.
        """
        kept = printable(self.text if text is None else text)
        # In the order in which they were given, each once.
        together = tuple(tag for tag in dict.fromkeys((*self.tags, *tags)) if tag not in untags)
        if odd := [tag for tag in tags if not _TAG.fullmatch(tag)]:
            raise JobError(f"{odd[0][:60]!r} is no tag: a word of at most 40 letters, digits and . + - _ is one")
        if len(together) > _MOST_TAGS or len(kept) > _MOST_CHARACTERS:
            raise JobError(f"a run has at most {_MOST_TAGS} tags and {_MOST_CHARACTERS} characters of a note")
        return RunNote(kept, together)

    def keep(self, file: Path) -> None:
        """Write the note to a file, atomically. Raises RunFolderError."""
        with whole_file(file) as temporary:
            temporary.write_text(json.dumps(asdict(self), ensure_ascii=False), encoding="utf-8")

    @property
    def words(self) -> str:
        """The text and the tags in one text, in which a search looks."""
        return "\n".join((self.text, *self.tags))
