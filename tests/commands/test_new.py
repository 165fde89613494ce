"""`vcdl new`: each template is a job in order; nothing is overwritten, and nothing is left of one that fails."""

from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import summary, vcdl
from tests.models.hub_presets import bert_preset
from tests.places import EXAMPLES
from vcdl.commands.new import TEMPLATES, new, new_from
from vcdl.data.readers.table_texts import write_lines
from vcdl.errors import DataError, ModelError, RunFolderError, VcdlError
from vcdl.job import load_job
from vcdl.run.checking import check_job

pytestmark = [pytest.mark.process, pytest.mark.keras]

NEEDS_KERAS = {"finetune"}
"""Templates whose data takes seconds to make."""
FLOORS = {"tabular": 0.8, "images": 0.9, "text": 0.85, "finetune": 0.85}
"""Accuracies on the test set that plain Keras comes to with the same passes, less some points."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_has_what_a_job_needs(template: str) -> None:
    folder = EXAMPLES / "new" / template
    text = (folder / "job.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"name: {template}\n")
    assert (folder / "make_data.py").is_file()
    assert (folder / "model.py").is_file() == ("python: model:build" in text)
    readme = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(readme) == 11
    assert max(map(len, readme)) <= 100


@pytest.mark.sampled(2)
@pytest.mark.keras
@pytest.mark.process
@pytest.mark.parametrize("template", [name for name in TEMPLATES if name not in NEEDS_KERAS])
def test_it_passes_the_check_at_once(template: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new(template, Path("mine"))
    assert "mine is ready: `cd mine`, then `vcdl run job.yaml`" in capsys.readouterr().out
    assert {path.name for path in (EXAMPLES / "new" / template).iterdir()} | {"data.npz"} == {
        path.name for path in (here / "mine").iterdir()
    }
    checked = check_job(here / "mine" / "job.yaml")
    assert (checked.job, checked.notes) == (template, ())
    assert checked.test_samples > 100


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.parametrize("template", TEMPLATES)
def test_it_is_trained_whole(template: str, here: Path) -> None:
    made = vcdl("new", template, cwd=here)
    assert made.returncode == 0, made.stderr
    done = vcdl("run", "job.yaml", cwd=here / template)
    assert done.returncode == 0, done.stderr
    measured = summary(here / template / "runs" / template)["metrics"]["test"]  # type: ignore[index]
    if template == "timeseries":
        assert measured["mean_absolute_error"] < 0.2
    else:
        assert measured["accuracy"] > FLOORS[template]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_is_overwritten(kind: str, here: Path) -> None:
    mine = here / "mine" / "job.yaml"
    if kind == "folder":
        mine.parent.mkdir()
        mine.write_text("mine")
    else:
        mine = here / "mine"
        mine.write_text("mine")
    with pytest.raises(RunFolderError, match="mine already exists and is not empty: choose another folder"):
        new("tabular", Path("mine"))
    assert mine.read_text() == "mine"


def test_a_folder_is_not_called_like_a_job_file(here: Path) -> None:
    with pytest.raises(RunFolderError, match="give the name of the new folder, such as mine"):
        new("tabular", Path("mine.yaml"))
    assert not list(here.iterdir())


@pytest.mark.parametrize("was_there", [True, False])
def test_data_that_cannot_be_made_leave_nothing(was_there: bool, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "false")
    if was_there:
        (here / "mine").mkdir()
    with pytest.raises(VcdlError, match=r"mine/make_data.py failed \(it says nothing\)"):
        new("tabular", Path("mine"))
    assert [path.name for path in here.rglob("*")] == (["mine"] if was_there else [])


def test_the_folder_is_quoted_in_the_command_that_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "t.csv").write_text("a,kind\n" + "1.5,x\n2.5,y\n" * 20)
    new_from("t.csv", here / "two words")
    assert "two words is ready: look at its job.yaml, `cd 'two words'`, then" in capsys.readouterr().out


def test_texts_of_a_table_are_written_as_lines(tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text('id,stars,text\n1,5,"a great\n\tfilm, really"\n2,1,awful\n3,,none\n4,1,\n')
    assert write_lines(table, "stars", tmp_path / "lines.txt")
    assert (tmp_path / "lines.txt").read_text() == "5\ta great film, really\n1\tawful\n"
    assert not write_lines(tmp_path / "lines.txt", None, tmp_path / "other.txt")
    table.write_text("a,label\n1,x\n2,y\n")
    with pytest.raises(DataError, match="no text column besides the label label"):
        write_lines(table, None, tmp_path / "other.txt")
    with pytest.raises(DataError, match="no column star"):
        write_lines(table, "star", tmp_path / "other.txt")
    table.write_text("id,text,kind\n" + "".join(f"{at},{'so' * (at % 7 + 1)},{at % 2}\n" for at in range(30)))
    with pytest.raises(DataError, match=r"column id hardly repeat.*by --label: id, text, kind"):
        write_lines(table, "id", tmp_path / "other.txt")


def test_a_preset_that_is_not_there_leaves_no_job_for_other_data(here: Path) -> None:
    """A job without a tokenizer was written, which left the texts out."""
    (here / "reviews.csv").write_text("text,label\nthe film was great,good\na play,bad\n" * 30, encoding="utf-8")
    with pytest.raises(ModelError, match=r'is no preset.*TextClassifier\.from_preset\("bert_tiny_en_uncased"'):
        new_from("reviews.csv", Path("mine"), hub=Path("bert_tiny_en_uncased"))
    assert not (here / "mine").exists()


@pytest.mark.slow
def test_a_preset_of_keras_hub_is_fine_tuned_on_labelled_texts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset = bert_preset(here / "preset")
    (here / "reviews.csv").write_text("text,label\n" + "the film was great,good\na play,bad\n" * 30, encoding="utf-8")
    new_from("reviews.csv", Path("mine"), hub=preset)
    assert "text: text → tokens\nlabel: text, 2 values: good (30), bad (30) → label, a guess" in capsys.readouterr().out
    job = load_job(here / "mine" / "job.yaml")
    assert (job.model.hub, job.data.shards) == (preset, 4)
    assert not (here / "mine" / "model.py").exists()
    checked = check_job(here / "mine" / "job.yaml")
    assert (checked.input_shape, checked.peak_rate) == ((8,), 5e-5)
