"""Pictures that travel as JPEG: the files of a folder in the shards, and the same pixels at the client."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vcdl.client.inputs import read_shard
from vcdl.client.unneeded import UNNEEDED, hide_unneeded
from vcdl.data import ensure_files, facts_of, load_dataset
from vcdl.data.rows import Rows
from vcdl.data.samples import read_samples
from vcdl.errors import DataError
from vcdl.job import load_job
from vcdl.job.reader import Reader
from vcdl.run.folder import RunFolder
from vcdl.wire import jpeg
from vcdl.wire.jpeg import JpegSamples, decode_jpeg
from vcdl.wire.npz_form import NpzError
from vcdl.wire.workunit import Normalisation

PLAIN = Normalisation()
SHAPE = (16, 16, 3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures as cameras make them: smooth, of 16 × 16 pixels but for the first."""
    for number in range(24):
        place = tmp_path / "pets" / ("cat", "dog")[number % 2] / f"{number:02d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8))
        side = 16 if number else 40
        small.resize((side, side), Image.Resampling.BICUBIC).save(place, quality=80)
    return tmp_path


def cut(folder: Path, name: str, keys: str) -> tuple[Rows, RunFolder, list[Path]]:
    """The training samples of a job, and the files that were cut of them."""
    (folder / "job.yaml").write_text(
        f"name: a\nmodel: {{builtin: small_cnn}}\ndata: {{from: {{path: pets, {keys}}}, shards: 2, validation: 4}}\n"
    )
    job = load_job(folder / "job.yaml")
    data, run = load_dataset(job.data, job.seed), RunFolder(folder / name)
    shards = ensure_files(run, data, job.data, job.seed)
    assert isinstance(data.x_train, Rows)
    return data.x_train, run, [shard.path for shard in shards]


@contextmanager
def as_a_client() -> Iterator[None]:
    """A process that has hidden what no training needs, Pillow as well."""
    modules = dict(sys.modules)
    for name in [name for name in modules if name.partition(".")[0] == "PIL"]:
        del sys.modules[name]
    hide_unneeded()
    try:
        yield
    finally:
        for name in UNNEEDED - modules.keys():
            sys.modules.pop(name, None)
        sys.modules.update(modules)


def pixels(x: Any) -> set[bytes]:
    return {sample.tobytes() for sample in np.asarray(x).astype(np.uint8)}


def test_files_travel_as_they_are_and_are_decoded_by_the_client(photos: Path) -> None:
    assert "PIL" in UNNEEDED
    x_train, run, shards = cut(photos, "run", "size: 16, jpeg: 90")
    expected = pixels(np.concatenate(list(x_train.source_blocks())))
    found = set()
    for shard in shards:
        (shard.parent / "shard.npz").hardlink_to(shard)
        with as_a_client():
            found |= pixels(read_shard(shard.parent, PLAIN, {"": SHAPE}).x)
        (shard.parent / "shard.npz").unlink()
    facts = facts_of(load_job(photos / "job.yaml").data)
    described = 20 * facts.packed * facts.sample_bytes
    assert sum(path.stat().st_size for path in shards) == pytest.approx(described, rel=0.2), "vcdl describe's bytes"
    held_out = read_samples(run.validation_file, PLAIN).x[:]
    assert found | pixels(held_out) == expected
    assert len(found) == 20
    files = b"".join(path.read_bytes() for path in (*shards, run.validation_file))
    assert sum(file.read_bytes() in files for file in (photos / "pets").rglob("*.jpg")) == 23, "all that fit"


def test_held_out_pictures_are_decoded_when_they_are_taken(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run, _ = cut(photos, "run", "size: 16, jpeg: 90")
    at_once = read_samples(run.validation_file, PLAIN)
    monkeypatch.setattr("vcdl.data.samples._IN_MEMORY_BYTES", 0)
    mapped = read_samples(run.validation_file, PLAIN)
    assert not isinstance(mapped.x, np.ndarray)
    np.testing.assert_array_equal(mapped.x[np.array([2, 0])], at_once.x[np.array([2, 0])])


def test_files_alone_are_those_of_whole_blocks(photos: Path) -> None:
    """What a reader inherits gives the same as what it does itself, from any sample on."""
    (photos / "job.yaml").write_text(
        "name: a\nmodel: {builtin: small_cnn}\ndata: {from: {path: pets, size: 16, jpeg: 90}}\n"
    )
    reader = load_job(photos / "job.yaml").data.from_
    assert reader is not None
    for begin in (0, 7):
        inherited = [file for files in Reader.encoded(reader, reader.path, "classification", begin) for file in files]
        assert inherited == [file for files in reader.encoded(reader.path, "classification", begin) for file in files]
        assert len(inherited) == 24 - begin


def test_an_unreadable_one_is_named_or_skipped(photos: Path) -> None:
    torn = photos / "pets" / "cat" / "04.jpg"
    torn.write_bytes(torn.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"04.jpg cannot be read as a picture"):
        cut(photos, "run", "size: 16, jpeg: 90")
    x_train, _, shards = cut(photos, "run", "size: 16, jpeg: 90, skip_unreadable: true")
    assert x_train.source_count == 23
    assert sum(len(np.load(path)["ends"]) for path in shards) == 19


def test_damaged_pictures_are_refused(photos: Path) -> None:
    with np.load(cut(photos, "run", "size: 16, jpeg: 90")[2][0]) as held:
        data, ends = held["x"], held["ends"]
    torn = data.copy()
    torn[:20] = 0
    for x, places, shape, message in (
        (torn, ends, SHAPE, "picture 0 is no JPEG"),
        (data, ends, (16, 15, 3), r"picture 0 has the shape \(16, 16, 3\), expected"),
        (data, ends[::-1], SHAPE, "`ends`"),
        (data, ends[:-1], SHAPE, "`ends`"),
        (data, np.insert(ends, 0, ends[0]), SHAPE, "`ends`"),  # an empty one
        (data, ends, (10**6, 10**6, 3), "1000000 × 1000000 .* 16384"),
        (data.astype(float), ends, SHAPE, "float64"),
    ):
        with pytest.raises(NpzError, match=message):
            JpegSamples(x, places, np.array(shape))[:]


@pytest.mark.keras
def test_pillow_and_tensorflow_decode_alike(photos: Path) -> None:
    for file in sorted((photos / "pets").rglob("*.jpg")):
        for channels, mode in ((1, "L"), (3, "RGB")):
            made = io.BytesIO()
            Image.open(file).convert(mode).save(made, "JPEG")
            other, own = jpeg._of_tensorflow(channels)(made.getvalue()), decode_jpeg(made.getvalue(), channels)
            np.testing.assert_array_equal(other, own)
