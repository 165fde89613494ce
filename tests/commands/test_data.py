"""`vcdl data` and `vcdl new --from`: from data of each kind to a job that is in order, with every guess written out."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vcdl.commands.data import show_data
from vcdl.commands.new import new_from
from vcdl.errors import DataError, RunFolderError
from vcdl.job import load_job
from vcdl.run.checking import check_job


def table(folder: Path) -> Path:
    lines = [f"{n},{n % 9 or ''},{('blue', 'red')[n % 2]},{n},n{n},{('iris', 'rose')[n // 50]}" for n in range(100)]
    (folder / "flowers.csv").write_text("\n".join(["id,height,colour,width,name,kind", *lines]) + "\n")
    return folder / "flowers.csv"


def arrays(folder: Path) -> Path:
    (folder / "set").mkdir()
    np.save(folder / "set" / "x_train.npy", np.random.default_rng(0).normal(size=(200, 5)))
    np.save(folder / "set" / "y_train.npy", np.random.default_rng(0).normal(size=200))
    return folder / "set"


def pictures(folder: Path) -> Path:
    for number in range(40):
        kind = folder / "pets" / ("cat", "dog")[number % 2]
        kind.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80 + number, 90), (number, 0, 0)).save(kind / f"{number}.jpg")
    (folder / "pets" / "cat" / "torn.jpg").write_bytes(b"\xff\xd8")
    return folder / "pets"


def text(folder: Path) -> Path:
    (folder / "book.txt").write_text("Once upon a time there was a cat.\n" * 300)
    return folder / "book.txt"


def lines(folder: Path) -> Path:
    (folder / "reviews.txt").write_text("good\tfine day\nbad\train\n" * 90)
    return folder / "reviews.txt"


def test_guesses_about_a_table_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_data(str(table(tmp_path)))
    told = capsys.readouterr().out
    for line in (
        "id: whole 0 … 99 → leave_out",
        "height: whole 1 … 8, 12 missing",
        "colour: text, 2 values: blue (50), red (50) → categories",
        "kind: text, 2 values: iris (50), rose (50) → label, a guess",
        "train  100 samples of shape (3,), float32 in shards",
        "labels 2 classes, in train: iris 50, rose 50",
        "label: kind",
    ):
        assert line in told
    show_data(str(tmp_path / "flowers.csv"), label="height")
    assert "height: whole 1 … 8, 12 missing → label\n" in capsys.readouterr().out
    with pytest.raises(DataError, match="has no column hight: it has id, height"):
        show_data(str(tmp_path / "flowers.csv"), label="hight")
    with pytest.raises(DataError, match="is not there: name a file or a folder"):
        show_data(str(tmp_path / "gone.csv"))


def test_samples_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_data(str(pictures(tmp_path)), picture=tmp_path / "samples.png")
    told = capsys.readouterr().out
    assert "1 cannot be read, the first" in told
    assert "jpeg: 90" in told, "photographs travel as files"
    assert Image.open(tmp_path / "samples.png").size == (800, 400)


@pytest.mark.keras
@pytest.mark.parametrize("make", [table, arrays, pictures, text, lines], ids=lambda make: make.__name__)
def test_each_kind_gets_a_job_in_order(make: object, tmp_path: Path) -> None:
    assert callable(make)
    source = make(tmp_path)
    new_from(str(source), tmp_path / "mine")
    checked = check_job(tmp_path / "mine" / "job.yaml")
    assert checked.train_samples > 30
    assert load_job(tmp_path / "mine" / "job.yaml").data.file == source
    with pytest.raises(RunFolderError, match="is not empty"):
        new_from(str(source), tmp_path / "mine")
