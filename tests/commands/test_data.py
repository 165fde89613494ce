"""`vcdl data` and `vcdl new --from`: from data of each kind to a job that is in order, with every guess written out."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from vcdl.commands.data import command, show_data
from vcdl.commands.new import new_from
from vcdl.data.readers.images import ImagesReader
from vcdl.data.readers.table import TableReader
from vcdl.data.suggestion import suggestion_for
from vcdl.errors import DataError, ExitCode, RunFolderError
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


@pytest.mark.sampled(2)
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


def named_pictures(folder: Path) -> Path:
    """Pictures below a folder, whose table names them beside notes."""
    (folder / "pets" / "seen").mkdir(parents=True)
    rows = ["picture,species,notes"]
    for number in range(40):
        Image.new("RGB", (30, 20), (number, 0, 0)).save(folder / "pets" / "seen" / f"{number}.png")
        rows.append(f"seen/{number}.png,{('cat', 'dog')[number % 2]},n{number}")
    (folder / "pets" / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder / "pets"


@pytest.mark.parametrize("label", [None, "species"])
def test_a_folder_of_pictures_whose_table_names_them_becomes_a_job(
    label: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new_from(str(named_pictures(tmp_path)), Path("mine"), label, {"size": [16, 16]})
    job = load_job(Path("mine/job.yaml"))
    found = job.data.from_
    assert isinstance(found, ImagesReader)
    assert (found.table, found.columns, found.size) == (Path("labels.csv"), ("picture", "species"), (16, 16))


def test_a_table_beside_pictures_that_it_does_not_name_is_a_table(tmp_path: Path) -> None:
    folder = named_pictures(tmp_path)
    (folder / "labels.csv").write_text("picture,width,species\n" + "elsewhere.png,3,cat\n" * 20)
    found = suggestion_for(str(folder)).data["from"]
    assert "as" not in found
    assert suggestion_for(str(folder), None, {"as": "table"}).data["from"]["as"] == "table"


def test_a_table_without_a_header_becomes_a_job_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.csv").write_text("".join(f"{row / 7},{row % 5},{'ab'[row % 2]}\n" for row in range(60)))
    new_from("raw.csv", Path("mine"))
    assert "no header: the first line holds values" in capsys.readouterr().out
    assert "header: false" in Path("mine/job.yaml").read_text()
    job = load_job(Path("mine/job.yaml"))
    assert suggestion_for("raw.csv").load().train.x.shape[1:] == (2,)
    assert isinstance(job.data.from_, TableReader)
    assert job.data.from_.training_samples() == 60


@pytest.mark.parametrize("size", ["64", "a,b", "64,64,3"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    done = CliRunner().invoke(command, ["pets", "--size", size])
    assert done.exit_code == ExitCode.USAGE
    assert "is not height and width, such as 64,64" in done.output
