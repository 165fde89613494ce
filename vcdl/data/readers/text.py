"""Read text files: windows of characters, bytes or tokens that predict the next unit; or labelled lines."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, TextIO, TypeVar

import numpy as np

from vcdl.data.readers.preset_tokens import PresetTokens
from vcdl.data.readers.table_file import refuse_utf_16
from vcdl.data.readers.tokens import Tokens
from vcdl.data.rows import Array
from vcdl.errors import DataError, unreadable
from vcdl.job.reader import Block, Outline, Reader, as_key
from vcdl.wire.task import Task
from vcdl.yaml_schema import values as kinds

Unit = Literal["characters", "bytes"]
_READ_BYTES = 2**20
_BYTES = 256
"""Number of values of a byte: the classes of a text that is read byte by byte."""
_Some = TypeVar("_Some")
_MANY = 1000
"""Different characters from which a suggested job reads a text byte by byte, because each would be a class."""
_FEWEST_WINDOWS = 20
"""Least number of windows into which a suggested job cuts a short text, so that validation gets some of them."""
_LINES = 4096
"""Lines that are read at a time, so that memory stays bounded."""


class TextReader(Reader):
    """`as: text`: without `lines` a sample is a window of the text, and its labels are the window one unit later."""

    as_: Literal["text"] = as_key("text")
    window: Annotated[int, kinds.whole(2, 65_536)] = 128
    """Units of a sample."""
    unit: Annotated[Unit, kinds.one_of(Unit)] = "characters"
    """`characters` are numbered from 0 in sorted order; `bytes` are those of UTF-8."""
    lines: Annotated[bool, kinds.true_or_false()] = False
    """Whether each line is a sample, `label<TAB>text`. Its input is the text's first bytes, each + 1, padded by 0."""
    tokenizer: Path | None = None
    """A `tokenizer.json`, or the folder of a KerasHub preset, whose tokens are the units; None: `unit` is used."""

    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        if self.lines:
            yield from self._read_labelled_lines(path, begin)
            return
        if task != "sequence":
            raise DataError(
                f"{path.name}: a window has a label for each unit, the next unit: set data > task: sequence, or for "
                "lines that begin with a label data > from > lines: true"
            )
        left: Array | None = None
        number = read = 0
        for some in self._units(path):
            read += len(some)
            # Let windows run across the pieces in which the file is read, so that the result does not depend on their
            # size.
            left = some if left is None else np.concatenate([left, some])
            # Keep one unit more than the windows, because the label of the last unit is the one after it.
            count = (len(left) - 1) // self.window
            if count <= 0:
                continue
            end = count * self.window
            x, y = left[:end].reshape(count, -1), left[1 : end + 1].reshape(count, -1)
            if number + count > begin:
                skips = max(0, begin - number)
                yield Block(x[skips:], y[skips:])
            number, left = number + count, left[end:]
        if read <= self.window:
            units = "tokens" if self.tokenizer is not None else self.unit
            raise DataError(
                f"{path.name} has {read} {units}, and a sample is a window of {self.window} and one more: give "
                + (f"more text, or set data > from > window: {read // 2} or less" if read > 3 else "more text")
            )

    def outline(self, label: str | None) -> Outline:
        with self.path.open("rb") as file:
            begin = [line for line in file.read(_READ_BYTES).splitlines()[:_LINES] if line.strip()]
        longest = max((len(line.partition(b"\t")[2]) for line in begin), default=0)
        labelled = [line for line in begin if line.partition(b"\t")[1] and line.partition(b"\t")[0].strip()]
        # Require labels in most lines, not in all: the first reading reports a line without one, and the user can
        # correct it. A few tabs may be part of a text.
        if longest and 2 * len(labelled) > len(begin):
            return Outline(source={"lines": True, "window": min(256, max(2, longest))}, model="lines")
        known = _characters(self.path)
        unit = {"unit": "bytes"} if len(known) > _MANY else {}
        lines = (f"{len(known)} different characters",)
        window = max(2, min(64, self.path.stat().st_size // _FEWEST_WINDOWS))
        return Outline(lines, {"window": window, **unit}, {"task": "sequence"}, "continues")

    def class_names(self) -> tuple[str, ...]:
        if self.lines:
            return ()
        if self.tokenizer is not None:
            return _tokens(self.tokenizer, None).names
        return tuple(map(str, range(_BYTES))) if self.unit == "bytes" else _characters(self.path)

    def training_samples(self) -> int | None:
        try:
            size_bytes = self.path.stat().st_size
            if not self.lines:
                return max(1, (size_bytes - 1) // self.window)
            with self.path.open("rb") as file:
                begin = file.read(_READ_BYTES)
        except OSError:
            return None
        return max(1, round(begin.count(b"\n") * size_bytes / max(1, len(begin))))

    def _units(self, path: Path) -> Iterator[Array]:
        if self.tokenizer is not None:
            tokens = _tokens(self.tokenizer, None)
            for lines in _lines(path):
                yield np.concatenate(tokens.of(lines))
            return
        if self.unit == "bytes":
            for some in _pieces(path):
                yield np.frombuffer(some, np.uint8)
            return
        known = _characters(self.path)
        codes = np.array([ord(character) for character in known])
        for text in _texts(path):
            # UTF-32 has one number per character, so NumPy can look up all of them at once.
            found = np.frombuffer(text.encode("utf-32-le"), np.uint32)
            places = np.minimum(np.searchsorted(codes, found), len(codes) - 1)
            if (strange := codes[places] != found).any():
                raise DataError(
                    f"{path.name} holds the character {chr(found[strange][0])!r}, which {self.path.name} does not: "
                    "take it out, or set data > from > unit: bytes"
                )
            yield places.astype(np.int32)

    def _read_labelled_lines(self, path: Path, begin: int) -> Iterator[Block]:
        number = place = 0
        tokens = None if self.tokenizer is None else _tokens(self.tokenizer, self.window)
        for lines in _lines(path):
            labels: list[str] = []
            texts: list[str] = []
            for line in lines:
                place += 1
                if not line.strip():
                    continue
                number += 1
                label, tab, text = line.rstrip("\r\n").partition("\t")
                if not tab or not label.strip():
                    raise DataError(f"{path.name}:{place}: no label before a tab: write label<TAB>text")
                if number > begin:
                    labels.append(label.strip())
                    texts.append(text)
            if texts:
                yield Block(self._pad(texts, tokens), np.array(labels))

    def _pad(self, texts: list[str], tokens: Tokens | PresetTokens | None) -> Array:
        """Return the first `window` units of each text, padded at the end, shape (n, window)."""
        padding = 0 if tokens is None else tokens.padding
        rows: list[Array]
        if tokens is None:
            # Add 1 to each byte, which leaves 0 for padding. UTF-8 has no byte 255, so the sum fits into a byte of a
            # shard (docs/decisions/079).
            rows = [np.frombuffer(text.encode()[: self.window], np.uint8).astype(np.int32) + 1 for text in texts]
        else:
            rows = tokens.of(texts)
        x = np.full((len(rows), self.window), padding, np.int32)
        for place, row in enumerate(rows):
            x[place, : len(row)] = row
        return x


def _tokens(tokenizer: Path, most: int | None) -> Tokens | PresetTokens:
    return (PresetTokens if tokenizer.is_dir() else Tokens)(tokenizer, most)


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while some := file.read(_READ_BYTES):
                yield some
    except OSError as error:
        raise unreadable(path, error) from error


def _texts(path: Path) -> Iterator[str]:
    return _read(path, lambda file: file.read(_READ_BYTES))


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield some lines at a time, with their line ends."""
    return _read(path, lambda file: list(islice(file, _LINES)))


def _read(path: Path, read: Callable[[TextIO], _Some]) -> Iterator[_Some]:
    try:
        refuse_utf_16(path)
        # Do not translate newlines: a model shall learn a text as it is, and a lone "\r" must not end a labelled line.
        with path.open(encoding="utf-8", newline="\n") as file:
            while some := read(file):
                yield some
    except UnicodeDecodeError as error:
        raise _no_text(path, error) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _no_text(path: Path, error: UnicodeDecodeError) -> DataError:
    return DataError(
        f"{path.name} is no text in UTF-8 (byte {error.start} of a piece): write it as UTF-8, or set unit: bytes"
    )


@lru_cache(maxsize=8)
def _characters(path: Path) -> tuple[str, ...]:
    """Return the different characters of a text file, sorted; cached. Raises DataError, FileUnavailable."""
    found: set[str] = set()
    for text in _texts(path):
        found.update(text)
    return tuple(sorted(found))
