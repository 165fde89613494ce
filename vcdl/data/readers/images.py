"""Read pictures with Pillow: in folders of classes, by a table of paths and labels, or from tables' own columns."""

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import PlainValidator

from vcdl.data.readers.arrow_columns import as_labels
from vcdl.data.readers.columns import LABELS
from vcdl.data.readers.part_folders import part_folders
from vcdl.data.readers.table_file import UNKNOWN, Table, open_table, table_files
from vcdl.data.rows import Array
from vcdl.errors import DataError, one_line
from vcdl.job.reader import Block, Outline, Reader, as_key
from vcdl.wire.jpeg import decode_jpeg
from vcdl.wire.task import Task
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML

Colour = Literal["rgb", "grey"]
_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""Formats that Pillow may decode, whatever a file is named.

For other formats Pillow starts programs, such as Ghostscript for EPS, and data may come from a submitter.
"""
_BLOCK_BYTES = 2**24
"""Size at which blocks aim: while one is used, the next ones are decoded (vcdl.data.ahead)."""
_LARGE = 64
"""Pixels of a side to which a suggested job scales larger pictures down, so that a first run is quick."""
_LOOKED_AT = 20
"""Rows of a table that are examined to find a column that names pictures."""
_SMALLEST_JPEG, _QUALITY = 32, 90
"""Smallest side in pixels for which a suggested job sends photographs as JPEG, and the quality of these files."""
_ORIENTATION = 0x0112
"""EXIF tag of the camera's orientation."""


class _Embedded(NamedTuple):
    """The bytes of a picture's file from a cell of a table, with the place of the cell for messages."""

    place: str
    data: bytes

    def __str__(self) -> str:
        return self.place


_File = Path | _Embedded
_Picture = tuple[_File, str]
"""A picture's file and its label."""
_Prepare = Callable[[_File, Array], bytes]
"""Writes a picture's pixels into an array, and returns the file that is sent in their place."""


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
    """Height and width; None: the size of all pictures, which must be the same."""
    colour: Annotated[Colour, kinds.one_of(Colour)] = "rgb"
    crop: Annotated[bool, kinds.true_or_false()] = False
    """Whether pictures of other proportions are cropped around their middle; otherwise they are stretched."""
    jpeg: Annotated[int, kinds.whole(1, 95)] | None = None
    """Quality of JPEG files that replace pixels; a file that fits is sent unchanged. None: pixels are sent."""
    table: Path | None = None
    """A table below the folder with a column of paths and one of labels; None: each folder is a class."""
    columns: Annotated[tuple[str, str], PlainValidator(lambda raw: _pair(raw)), SECTION_AS_YAML] = ("file", "label")
    """The two columns of the table, or of the tables in a folder that contain the pictures."""
    skip_unreadable: Annotated[bool, kinds.true_or_false()] = False

    @property
    def parts(self) -> Mapping[str, Path]:
        given = super().parts
        return given if len(given) > 1 or self.table is not None else part_folders(self.path) or given

    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        for pixels, files, labels in self._samples(path, begin, self._sample):
            yield Block(pixels, as_labels(labels), files if self.jpeg else None)

    def encoded(self, path: Path, task: Task, begin: int = 0) -> Iterator[Sequence[bytes]]:
        as_file = self._sample if self.skip_unreadable else self._file  # only decoding shows which are skipped
        for _, files, _ in self._samples(path, begin, as_file):
            yield files

    def _samples(self, path: Path, begin: int, prepare: _Prepare) -> Iterator[tuple[Array, list[bytes], list[str]]]:
        """Yield pixels, files and labels of some pictures at a time, starting with the sample `begin`.

        All cores decode the next group while the caller uses the last one.

        Args:
            path: The part.
            begin: Number of samples to skip.
            prepare: Decodes one picture.
        """
        size = self.size or _first_size(path, (file for file, _ in self._each(path)))
        rows = max(1, _BLOCK_BYTES // (size[0] * size[1] * self._channels))
        # With skip_unreadable, only decoding can tell how many samples precede `begin`, since unreadable pictures do
        # not count.
        waiting = islice(self._each(path), 0 if self.skip_unreadable else begin, None)
        skips = begin if self.skip_unreadable else 0
        groups = iter(lambda: list(islice(waiting, rows)), [])
        # Threads suffice, since Pillow releases the interpreter lock while it decodes. Unlike os.cpu_count, the
        # affinity respects the cores that a batch system or `taskset` allows.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            begun: list[tuple[Array, Iterator[bytes | None], list[_Picture]]] = []
            for some in chain(groups, (None,)):  # the next ones are prepared while these are used
                if some is not None:
                    # Let the threads decode into one array, so that a block without unreadable pictures needs no copy.
                    pixels = np.empty((len(some), *size, self._channels), np.uint8)
                    begun.append((pixels, pool.map(partial(self._try_prepare, prepare), some, pixels), some))
                if begun and (len(begun) > 1 or some is None):
                    pixels, made, of = begun.pop(0)
                    ready = [(place, file) for place, file in enumerate(made) if file is not None]
                    kept, skips = ready[skips:], max(0, skips - len(ready))
                    if kept:
                        places = [place for place, _ in kept]
                        pixels = pixels if len(kept) == len(of) else pixels[places]
                        yield pixels, [file for _, file in kept], [of[place][1] for place in places]

    def outline(self, label: str | None) -> Outline:
        from PIL import Image

        pictures = self.pictures(self.parts["train"])
        sizes: Counter[tuple[int, int]] = Counter()
        unreadable, jpegs = [], 0
        for file, _ in pictures:
            try:
                with Image.open(_open(file), formats=_FORMATS) as opened:
                    lies = opened.getexif().get(_ORIENTATION, 1) > 4  # a phone that was held upright
                    sizes[(opened.width, opened.height) if lies else (opened.height, opened.width)] += 1
                    jpegs += opened.format == "JPEG"
            except Exception:  # Pillow's readers raise nearly everything for a damaged file
                unreadable.append(file)
        if not sizes:
            raise DataError(f"none of {len(pictures)} pictures can be read, such as {pictures[0][0]}: check the folder")
        (height, width), count = sizes.most_common(1)[0]
        lines = [f"{len(pictures)} pictures, {count} of {height} × {width} pixels, of {len(sizes)} sizes in all"]
        if unreadable:
            lines.append(f"{len(unreadable)} cannot be read, the first {unreadable[0]}: correct or remove them")
        is_small = len(sizes) == 1 and max(height, width) <= _LARGE
        keys: dict[str, Any] = {} if is_small else {"size": [min(_LARGE, height), min(_LARGE, width)], "crop": True}
        # Encoding loses some detail (docs/decisions/079); pictures that are JPEG files have already lost it.
        if 2 * jpegs > len(pictures) and min(height, width) >= _SMALLEST_JPEG:
            keys["jpeg"] = _QUALITY
        return Outline(tuple(lines), {**keys, **({"skip_unreadable": True} if unreadable else {})}, model="small_cnn")

    def training_samples(self) -> int | None:
        try:
            return len(self.pictures(self.parts["train"]))
        except DataError:
            return None

    def pictures(self, path: Path) -> list[_Picture]:
        """Return the files and labels of all pictures in a folder, in a fixed order.

        Raises:
            DataError: There are none, or the table of the pictures is wrong.
        """
        if not path.is_dir():
            raise DataError(f"{path.name} is no folder: name the one with the pictures")
        if self.table is not None:
            return self._in_table(self.table, path)
        classes = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
        found: list[_Picture] = [
            (file, folder.name)
            for folder in classes
            # Sort, because file systems list in an order of their own and samples must come in the same order each
            # time.
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

    def class_names(self) -> tuple[str, ...]:
        files = self._tables(self.parts["train"])
        if not files:
            return ()
        with open_table(files[0]) as opened:
            return opened.class_names(self.columns[1])

    def _each(self, path: Path) -> Iterator[_Picture]:
        files = self._tables(path)
        return self._read_embedded(files) if files else iter(self.pictures(path))

    def _tables(self, path: Path) -> list[Path]:
        """Return the Arrow and Parquet files in a folder, whose cells contain pictures; usually there are none.

        Hugging Face's datasets are saved in this form.
        """
        is_asked = self.table is None and path.is_dir()
        return sorted(file for file in path.iterdir() if file.suffix in (".arrow", ".parquet")) if is_asked else []

    def _read_embedded(self, files: list[Path]) -> Iterator[_Picture]:
        for file in files:
            with open_table(file) as opened:
                # In Hugging Face's sets labels are numbers, and the metadata list their names. Without that list the
                # numbers are the names.
                names = opened.class_names(self.columns[1])
                for number, (picture, label) in enumerate(self._rows(file, opened)):
                    # Hugging Face stores a struct of bytes and path, other tools the bytes alone.
                    data = picture.get("bytes") if isinstance(picture, dict) else picture
                    if not isinstance(data, bytes):
                        raise DataError(
                            f"{file.name}: column {self.columns[0]} holds no picture in row {number}: save the set by "
                            "save_to_disk, or name the folder of the pictures"
                        )
                    yield _Embedded(f"{file}, row {number}", data), names[label] if names else str(label)

    def _rows(self, file: Path, opened: Table) -> Iterator[tuple[Any, Any]]:
        """Yield (picture or path, label) of each row. Raises DataError."""
        for column in self.columns:
            if column not in opened.schema.names:
                raise DataError(
                    f"{file.name} has no column {column}: say which hold path or picture, and label, "
                    f"data > from > columns: [{', '.join(opened.schema.names[:2])}]"
                )
        for batch in opened.batches(self.columns, {}, values=UNKNOWN):
            yield from zip(*(batch.column(column).to_pylist() for column in self.columns), strict=True)

    def _in_table(self, name: Path, folder: Path) -> list[_Picture]:
        table = folder / name
        found: list[tuple[Path, str]] = []
        for file in table_files(table):
            with open_table(file) as opened:
                found += [(folder / str(path), str(label)) for path, label in self._rows(file, opened)]
        for path, _ in found:  # a table may come from others, and what it names goes to all hosts
            if ".." in path.parts or not path.is_relative_to(folder):
                raise DataError(f"{table.name} names {path}, which is not below {folder.name}: put the pictures there")
        missing = [path for path, _ in found if not path.is_file()]
        if missing:
            raise DataError(f"{table.name} names {missing[0]}, which is not there ({len(missing)} of {len(found)})")
        return list(found)

    @property
    def _channels(self) -> int:
        return 3 if self.colour == "rgb" else 1

    def _try_prepare(self, prepare: _Prepare, picture: _Picture, pixels: Array) -> bytes | None:
        """Prepare a picture, and return what `prepare` returns; None if the picture is unreadable and is skipped.

        Raises:
            DataError: The file is unreadable, and unreadable files are not skipped.
        """
        file = picture[0]
        try:
            return prepare(file, pixels)
        except DataError:
            raise
        except Exception as error:  # Pillow's readers raise nearly everything for a damaged file
            if self.skip_unreadable:
                return None
            raise DataError(
                f"{file} cannot be read as a picture ({one_line(error)[:200]}): correct or remove it, or set data > "
                "from > skip_unreadable: true"
            ) from error

    def _sample(self, file: _File, pixels: Array) -> bytes:
        """Write pixels into an array, shape (height, width, channels); return the file to send, if there is one."""
        if self.jpeg is None:
            pixels[...] = np.asarray(self._picture(file, pixels.shape[:2])).reshape(pixels.shape)
            return b""
        data = self._file(file, pixels)
        # Decode the file that is sent instead of taking the original pixels: the measured range must be that of the
        # pixels that clients see (docs/decisions/079).
        pixels[...] = decode_jpeg(data, self._channels)
        return data

    def _file(self, file: _File, pixels: Array) -> bytes:
        """Return a picture as a JPEG file: its own file if nothing has to be changed."""
        from PIL import Image

        mode = "RGB" if self.colour == "rgb" else "L"
        content = _open(file)
        with Image.open(content, formats=_FORMATS) as opened:
            is_plain = opened.format == "JPEG" and opened.mode == mode and opened.size == pixels.shape[1::-1]
            # A client decodes without looking at the orientation, so send the original file only if it needs none.
            if is_plain and opened.getexif().get(_ORIENTATION, 1) == 1:
                return content.getvalue()
        output = io.BytesIO()
        self._picture(file, pixels.shape[:2]).save(output, "JPEG", quality=self.jpeg)
        return output.getvalue()

    def _picture(self, file: _File, size: tuple[int, ...]) -> Any:
        """Return a picture in the size and colours of a sample. Raises DataError, and Pillow's errors."""
        from PIL import Image, ImageOps

        mode = "RGB" if self.colour == "rgb" else "L"
        height, width = size
        with Image.open(_open(file), formats=_FORMATS) as opened:
            if opened.format == "JPEG" and self.size is not None:
                opened.draft(mode, (width, height))  # decodes a large one at a fraction of its size
            if opened.mode.startswith(("I", "F")):  # Pillow would clip larger values to 255
                raise DataError(
                    f"{file} holds more than 8 bits a pixel, and pictures are trained in 8: convert it, or write all "
                    "as a folder of arrays"
                )
            # Do this before the size is compared, because it may exchange height and width.
            ImageOps.exif_transpose(opened, in_place=True)
            picture: Image.Image = opened
            if opened.has_transparency_data:  # what lies beneath a transparent pixel means nothing
                picture = Image.alpha_composite(Image.new("RGBA", opened.size, "white"), opened.convert("RGBA"))
            picture = picture if picture.mode == mode else picture.convert(mode)
            picture.load()
        if picture.size == (width, height):
            return picture
        if self.size is None:
            raise DataError(
                f"{file} has {picture.height} × {picture.width} pixels, the first one {height} × {width}: set a "
                f"size for all, data > from > size: [{height}, {width}]"
            )
        return ImageOps.fit(picture, (width, height)) if self.crop else picture.resize((width, height))


def picture_table_keys(folder: Path, label: str | None) -> dict[str, Any]:
    """Return the keys of `data > from` for a folder whose only table names pictures; none for any other folder.

    Args:
        folder: The folder.
        label: The column of labels; None: the likeliest.

    Raises:
        DataError, FileUnavailable: A table or a picture cannot be read.
    """
    tables = [file for file in folder.iterdir() if file.suffix.lower() in (".csv", ".tsv")]
    # With several tables in the folder it would be a guess which one names the pictures.
    if len(tables) != 1:
        return {}
    with open_table(tables[0]) as opened:
        names = opened.schema.names
        first: dict[str, list[Any]] = next(
            (batch.slice(0, _LOOKED_AT).to_pydict() for batch in opened.batches(names, {})), {}
        )
    named = [name for name, values in first.items() if all(_is_picture(folder, value) for value in values)]
    if not named or len(names) < 2:
        return {}
    others = [name for name in names if name != named[0]]
    labels = label or next((name for name in others if name.lower() in LABELS), others[-1])
    if labels not in others:
        raise DataError(
            f"{tables[0].name} has no column {labels} in addition to {named[0]}: it has {', '.join(others)}"[:500]
        )
    return {"as": "images", "table": tables[0].name, "columns": [named[0], labels]}


def _is_picture(folder: Path, value: Any) -> bool:
    return isinstance(value, str) and Path(value).suffix.lower() in _ENDINGS and (folder / value).is_file()


def _pair(raw: Any) -> tuple[str, str]:
    if not isinstance(raw, list | tuple) or len(raw) != 2 or not all(isinstance(name, str) for name in raw):
        raise kinds.expected("the columns of path and label, such as [file, label]", raw)
    return raw[0], raw[1]


def _open(file: _File) -> io.BytesIO:
    return io.BytesIO(file.data if isinstance(file, _Embedded) else file.read_bytes())


def _first_size(path: Path, files: Iterator[_File]) -> tuple[int, int]:
    """Return height and width of the first picture that can be read."""
    from PIL import Image, ImageOps

    for file in files:
        try:
            with Image.open(_open(file), formats=_FORMATS) as opened:
                picture = ImageOps.exif_transpose(opened)
                return picture.height, picture.width
        except Exception:  # it is reported when all are decoded
            continue
    raise DataError(f"none of the pictures in {path} can be read: check the folder")
