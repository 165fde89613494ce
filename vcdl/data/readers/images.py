"""Folders of pictures, one folder a class, or with a table of paths and labels; decoded by Pillow on all cores."""

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator

from vcdl.data.readers.part_folders import part_folders
from vcdl.data.readers.table_file import opened_table, table_files
from vcdl.data.rows import Array
from vcdl.errors import DataError, one_line
from vcdl.job.reader import Block, Outline, Reader, as_key
from vcdl.wire.jpeg import decode_jpeg
from vcdl.wire.task import Task
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML

Colour = Literal["rgb", "grey"]
_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
_BLOCK_BYTES = 2**24
_LARGE = 64
"""Pixels of a side above which a first job makes pictures smaller."""
_SMALLEST_JPEG, _QUALITY = 32, 90
"""Pixels of a side from which on a first job lets photographs travel as JPEG, and their quality."""
_ORIENTATION = 0x0112
"""The tag of a camera's position."""
_Picture = tuple[Path, str]
"""A file and its label."""


def _size(raw: Any) -> tuple[int, int]:
    sides = (raw, raw) if isinstance(raw, int) else raw
    if (
        not isinstance(sides, list | tuple)
        or len(sides) != 2
        or not all(type(s) is int and 0 < s < 2**14 for s in sides)
    ):
        raise kinds.expected("height and width in pixels, such as [64, 64]", raw)
    return sides[0], sides[1]


class ImagesReader(Reader):
    """`as: images`: a picture is a sample of shape (height, width, channels) in uint8."""

    as_: Literal["images"] = as_key("images")
    size: Annotated[tuple[int, int] | None, PlainValidator(_size), SECTION_AS_YAML] = None
    """Height and width; None: that of all pictures, which must be one."""
    colour: Annotated[Colour, kinds.one_of(Colour)] = "rgb"
    crop: Annotated[bool, kinds.true_or_false()] = False
    """Whether pictures of other proportions are cropped around their middle; else they are stretched."""
    jpeg: Annotated[int, kinds.whole(1, 95)] | None = None
    """The quality of JPEG files that travel in the place of pixels; one that fits travels as it is. None: pixels do."""
    table: Path | None = None
    """A table with a column of paths, below the folder, and one of labels; None: folders are classes."""
    columns: Annotated[tuple[str, str], PlainValidator(lambda raw: _pair(raw)), SECTION_AS_YAML] = ("file", "label")
    """The two columns of the table."""
    skip_unreadable: Annotated[bool, kinds.true_or_false()] = False

    @property
    def parts(self) -> Mapping[str, Path]:
        given = super().parts
        return given if len(given) > 1 or self.table is not None else part_folders(self.path) or given

    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        for some in self._samples(path, begin, self._sample):
            pixels, files, labels = zip(*some, strict=True)
            yield Block(np.stack(pixels), np.array(labels), files if self.jpeg else None)

    def encoded(self, path: Path, begin: int = 0) -> Iterator[Sequence[bytes]]:
        as_file = self._sample if self.skip_unreadable else self._file  # what is skipped shows when it is decoded
        for some in self._samples(path, begin, as_file):
            yield [file for _, file, _ in some]

    def _samples(self, path: Path, begin: int, prepare: Callable[[Path, tuple[int, int]], Any]) -> Iterator[Any]:
        """Lists of (pixels, file, label), prepared on all cores."""
        pictures = self.pictures(path)
        size = self.size or _first_size([file for file, _ in pictures])
        rows = max(1, _BLOCK_BYTES // (size[0] * size[1] * self._channels))
        waiting = iter(pictures if self.skip_unreadable else pictures[begin:])
        skips = begin if self.skip_unreadable else 0
        groups = iter(lambda: list(islice(waiting, rows)), [])
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            begun: list[tuple[Any, list[_Picture]]] = []
            for some in chain(groups, (None,)):  # the next ones are prepared while these are used
                if some is not None:
                    begun.append((pool.map(lambda picture: self._tried(prepare, picture[0], size), some), some))
                if begun and (len(begun) > 1 or some is None):
                    made, of = begun.pop(0)
                    kept = [(*sample, label) for sample, (_, label) in zip(made, of, strict=True) if sample is not None]
                    kept, skips = kept[min(skips, len(kept)) :], max(0, skips - len(kept))
                    if kept:
                        yield kept

    def outline(self, label: str | None) -> Outline:
        from PIL import Image

        pictures = self.pictures(self.parts["train"])
        sizes: Counter[tuple[int, int]] = Counter()
        unreadable, jpegs = [], 0
        for file, _ in pictures:
            try:
                with Image.open(file) as opened:
                    sizes[opened.height, opened.width] += 1
                    jpegs += opened.format == "JPEG"
            except Exception:  # Pillow's readers raise nearly everything for a damaged file
                unreadable.append(file)
        if not sizes:
            raise DataError(f"none of {len(pictures)} pictures can be read, such as {pictures[0][0]}: check the folder")
        (height, width), count = sizes.most_common(1)[0]
        lines = [f"{len(pictures)} pictures, {count} of {height} × {width} pixels, of {len(sizes)} sizes in all"]
        if unreadable:
            lines.append(f"{len(unreadable)} cannot be read, the first {unreadable[0]}: mend or remove them")
        is_small = len(sizes) == 1 and max(height, width) <= _LARGE
        keys: dict[str, Any] = {} if is_small else {"size": [min(_LARGE, height), min(_LARGE, width)], "crop": True}
        if 2 * jpegs > len(pictures) and min(height, width) >= _SMALLEST_JPEG:
            keys["jpeg"] = _QUALITY
        return Outline(tuple(lines), {**keys, **({"skip_unreadable": True} if unreadable else {})}, model="small_cnn")

    def training_samples(self) -> int | None:
        try:
            return len(self.pictures(self.parts["train"]))
        except DataError:
            return None

    def pictures(self, path: Path) -> list[_Picture]:
        """All pictures of a part with their labels, in order. Raises DataError."""
        if not path.is_dir():
            raise DataError(f"{path.name} is no folder: name the one with the pictures")
        if self.table is not None:
            return self._in_table(self.table, path)
        classes = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
        found = [
            (file, folder.name)
            for folder in classes
            for file in sorted(folder.rglob("*"))
            if file.suffix.lower() in _ENDINGS
        ]
        if not found:
            loose = any(file.suffix.lower() in _ENDINGS for file in path.iterdir())
            cure = (
                "put those of a class into a folder of its name, or give data > from > table" if loose else "check it"
            )
            raise DataError(f"{path.name} holds no pictures in folders of classes: {cure}")
        return found

    def _in_table(self, name: Path, folder: Path) -> list[_Picture]:
        table = folder / name
        found: list[_Picture] = []
        for file in table_files(table):
            with opened_table(file) as opened:
                for column in self.columns:
                    if column not in opened.schema.names:
                        raise DataError(
                            f"{file.name} has no column {column}: say which hold path and label, "
                            f"data > from > columns: [{', '.join(opened.schema.names[:2])}]"
                        )
                for batch in opened.batches(self.columns, {}):
                    paths, labels = (batch.column(column).to_pylist() for column in self.columns)
                    found += [(folder / str(path), str(label)) for path, label in zip(paths, labels, strict=True)]
        missing = [path for path, _ in found if not path.is_file()]
        if missing:
            raise DataError(f"{table.name} names {missing[0]}, which is not there ({len(missing)} of {len(found)})")
        return found

    @property
    def _channels(self) -> int:
        return 3 if self.colour == "rgb" else 1

    def _tried(self, prepare: Callable[[Path, tuple[int, int]], Any], file: Path, size: tuple[int, int]) -> Any:
        """What `prepare` makes of a file; None: it is unreadable, and to be skipped. Raises DataError."""
        try:
            return prepare(file, size)
        except DataError:
            raise
        except Exception as error:  # Pillow's readers raise nearly everything for a damaged file
            if self.skip_unreadable:
                return None
            raise DataError(
                f"{file} is no whole picture ({one_line(error)[:200]}): mend or remove it, or set data > from > "
                "skip_unreadable: true"
            ) from error

    def _sample(self, file: Path, size: tuple[int, int]) -> tuple[Array, bytes]:
        """Pixels of shape (height, width, channels), and the file that travels, if one does."""
        if self.jpeg is None:
            pixels = np.asarray(self._picture(file, size))
            return (pixels if pixels.ndim == 3 else pixels[:, :, None]), b""
        _, data = self._file(file, size)
        return decode_jpeg(data, self._channels), data

    def _file(self, file: Path, size: tuple[int, int]) -> tuple[None, bytes]:
        """The JPEG file of a picture: its own where nothing in it is to be changed."""
        from PIL import Image

        mode = "RGB" if self.colour == "rgb" else "L"
        with Image.open(file) as opened:
            is_plain = opened.format == "JPEG" and opened.mode == mode and opened.size == size[::-1]
            if is_plain and opened.getexif().get(_ORIENTATION, 1) == 1:
                return None, file.read_bytes()
        output = io.BytesIO()
        self._picture(file, size).save(output, "JPEG", quality=self.jpeg)
        return None, output.getvalue()

    def _picture(self, file: Path, size: tuple[int, int]) -> Any:
        """A picture in the size and colour of a sample. Raises DataError, and what Pillow raises."""
        from PIL import Image, ImageOps

        mode = "RGB" if self.colour == "rgb" else "L"
        height, width = size
        with Image.open(file) as opened:
            if opened.format == "JPEG" and self.size is not None:
                opened.draft(mode, (width, height))  # decodes a large one at a fraction of its size
            picture = ImageOps.exif_transpose(opened).convert(mode)
        if picture.size == (width, height):
            return picture
        if self.size is None:
            raise DataError(
                f"{file} has {picture.height} × {picture.width} pixels, the first one {height} × {width}: say what "
                f"all become, data > from > size: [{height}, {width}]"
            )
        return ImageOps.fit(picture, (width, height)) if self.crop else picture.resize((width, height))


def _pair(raw: Any) -> tuple[str, str]:
    if not isinstance(raw, list | tuple) or len(raw) != 2 or not all(isinstance(name, str) for name in raw):
        raise kinds.expected("the columns of path and label, such as [file, label]", raw)
    return raw[0], raw[1]


def _first_size(files: list[Path]) -> tuple[int, int]:
    """Height and width of the first picture that can be read."""
    from PIL import Image, ImageOps

    for file in files:
        try:
            with Image.open(file) as opened:
                picture = ImageOps.exif_transpose(opened)
                return picture.height, picture.width
        except Exception:  # whoever decodes it says what is wrong
            continue
    raise DataError(f"none of {len(files)} pictures can be read, such as {files[0]}: check the folder")
