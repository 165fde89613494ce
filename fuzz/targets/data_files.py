"""Files of data and models that a person has from others: pictures, tables, `.keras` archives."""

import io
import random
import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fuzz.mutations import mutated
from fuzz.target import Target, hold
from vcdl.client.model import load_model
from vcdl.data import load_dataset
from vcdl.data.readers.images import ImagesReader
from vcdl.errors import DataError, JobError, ModelError
from vcdl.job.data import DataSettings
from vcdl.models.given_weights import load_given_weights, read_keras_json

_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
_CSV = "a,b,y\n" + "".join(f"{n % 7},{n / 3:.2f},{'xyz'[n % 3]}\n" for n in range(40))


class Pictures(Target):
    """A picture among two good ones. The first byte chooses whether JPEG files travel."""

    name = "pictures"
    refuses = (DataError,)
    words = (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"\x89PNG\r\n\x1a\n", b"IHDR", b"IDAT", b"acTL", b"iCCP",
        b"\xff\xd8\xff", b"\xff\xda", b"\xff\xc0", b"Exif\0\0", b"GIF89a", b"II*\0", b"MM\0*", b"RIFF", b"WEBPVP8X",
        b"BM", struct.pack(">I", 1 << 30), struct.pack("<I", 1 << 30), struct.pack(">H", 0xFFFF), bytes(8),
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "set" / "cat").mkdir(parents=True)
        for name in ("0.png", "2.png"):
            (folder / "set" / "cat" / name).write_bytes(_picture("PNG"))

    def seeds(self) -> Sequence[bytes]:
        return [bytes([place % 2]) + _picture(form) for place, form in enumerate(_FORMATS)]

    def take(self, data: bytes) -> None:
        path = self.folder / "set"
        (path / "cat" / "1.png").write_bytes(data[1:])
        reader = ImagesReader.model_validate({"path": path, "size": 8, "jpeg": 90 if data and data[0] % 2 else None})
        with warnings.catch_warnings(action="ignore"):  # Pillow tells of each damaged tag
            reader.outline(None)
            for block in reader.blocks(path, "classification"):
                hold(block.x.shape == (3, 8, 8, 3) and block.x.dtype == np.uint8, "pixels of another form")


def _picture(form: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (9, 7, 3), np.uint8)
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


class Tables(Target):
    """A table with labels. The first byte chooses the kind of its file."""

    name = "tables"
    refuses = (DataError, JobError)
    words = (
        b",", b"\t", b'"', b"\n", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"nan", b"inf", b"1e999", b"-",
        b"9" * 400, b"y", b",,,", b'"""', b"true", b"2026-01-01", b"PAR1", b"ARROW1", bytes(8), b"\xff" * 8,
        "é".encode(),
    )  # fmt: skip
    _kinds = ("csv", "tsv", "parquet", "arrow")

    def seeds(self) -> Sequence[bytes]:
        import pyarrow as pa
        import pyarrow.parquet

        rows = [line.split(",") for line in _CSV.splitlines()[1:]]
        table = pa.table(
            {"a": [int(a) for a, _, _ in rows], "b": [float(b) for _, b, _ in rows], "y": [y for *_, y in rows]}
        )
        parquet, arrow = io.BytesIO(), io.BytesIO()
        pa.parquet.write_table(table, parquet, row_group_size=15)
        with pa.ipc.new_file(arrow, table.schema) as writer:
            writer.write_table(table)
        files = (_CSV.encode(), _CSV.replace(",", "\t").encode(), parquet.getvalue(), arrow.getvalue())
        return [bytes([kind]) + content for kind, content in enumerate(files)]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return data[:1] + mutated(dice, data[1:], [other[1:] for other in others], self.words)

    def take(self, data: bytes) -> None:
        path = self.folder / f"t.{self._kinds[data[0] % len(self._kinds) if data else 0]}"
        path.write_bytes(data[1:])
        settings = DataSettings.model_validate({"from": {"path": str(path), "label": "y"}}, context=self.folder)
        dataset = load_dataset(settings, seed=1)
        x, y = dataset.x_train, dataset.y_train
        x = x if isinstance(x, np.ndarray) else x.take(np.arange(len(x)))
        hold(len(x) == len(y) > 0, "another number of samples than of labels")
        hold(bool(np.isfinite(x.astype(np.float32)).all()), "inputs that are not finite")


class KerasArchives(Target):
    """`.keras` files: the architecture, then the weights for a model of ours."""

    name = "keras_archives"
    refuses = (ModelError,)
    words = (
        b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"config.json", b"model.weights.h5", b"\x89HDF\r\n\x1a\n", b"TREE",
        b"SNOD", b"HEAP", b"layers", b"vars", b"Lambda", b"../", bytes(8), b"\xff" * 8,
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import keras

        self._model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])

    def seeds(self) -> Sequence[bytes]:
        self._model.save(self.folder / "seed.keras")
        return [(self.folder / "seed.keras").read_bytes()]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        """Half of the time the archive's bytes are changed, else those of a member, with the right checksum."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
        except (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, ValueError, EOFError, OSError, LookupError):
            members = {}
        if not members or dice.random() < 0.4:
            return mutated(dice, data, others, self.words)
        name = dice.choice(list(members))
        members[name] = mutated(dice, members[name], list(members.values()), self.words)
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return made.getvalue()

    def take(self, data: bytes) -> None:
        path = self.folder / "m.keras"
        path.write_bytes(data)
        load_model(read_keras_json(path))
        load_given_weights(self._model, path)
        hold(all(np.isfinite(value).all() for value in self._model.get_weights()), "weights that are not finite")
