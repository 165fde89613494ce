"""Keys and files that people bring from elsewhere: each refusal says what to use here."""

from pathlib import Path

import pytest

from vcdl.errors import JobError
from vcdl.job import load_job


def refusal(folder: Path, text: str) -> str:
    (folder / "job.yaml").write_text(text)
    with pytest.raises(JobError) as caught:
        load_job(folder / "job.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


START = "name: a\nmodel: {builtin: mlp}\n"


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("callbacks: [early_stopping]", "callbacks: is no key of a job; volunteers run no code of a job: use `stop`"),
        ("augment: flip", "augment: is no key of a job; put Keras' layers for it into the model"),
        ("training: {callbacks: []}", "training > callbacks: is no key of a job; volunteers run no code"),
        ("training: {epochs: 5}", "training > epochs: is no key of a job; use stop > epochs"),
        ("training: {validation_split: 0.1}", "use data > validation"),
        ("training: {sample_weight: w}", "put an array weight_train next to y_train"),
    ],
)
def test_a_key_of_keras_is_answered_with_ours(line: str, advice: str, tmp_path: Path) -> None:
    assert advice in refusal(tmp_path, f"{START}data: {{dataset: digits}}\n{line}\n")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("ftp://host/data.npz", "ftp:// is not read; give a path, or s3://, gs://, https://"),
        ("https://host/folder/", "https://host/folder/ is a folder, and https:// serves files"),
        ("table.csv", "write `from: table.csv` instead of npz"),
        ("array.npy", "write `from: array.npy` instead of npz"),
        ("data.pkl", "is a pickle, which may run code"),
        (".", ". is a folder: write `from: .`"),
        ("images", "images is a folder: write `from: images` instead of npz"),
        ("missing.npz", "there is no file"),
    ],
)
def test_what_is_no_npz_is_answered_with_how_to_write_one(name: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    assert advice in refusal(tmp_path, f'{START}data: {{npz: "{name}"}}\n')


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (
            "task: multi_label, mask: -1",
            "data > mask: multi_label cannot mask labels; use it with segmentation or sequence (of several "
            "labels too: docs/data.md, `Several labels, some of them missing`)",
        ),
        ("mask: 0", "data > mask: classification cannot mask labels; use it with segmentation or sequence"),
        ("mask: 0, task: regression", "data > mask: regression cannot mask labels"),
        ("mask: 1.5, task: sequence", "data > mask: expected a label, a whole number or text"),
        ("classes: 3, task: regression", "data > classes: regression has no classes"),
        ("split: dirichlet, task: sequence", "data > split: dirichlet cuts by the class of a sample, which sequence"),
    ],
)
def test_keys_of_other_tasks_are_refused(data: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "d.npz").touch()
    assert advice in refusal(tmp_path, f"{START}data: {{npz: d.npz, {data}}}\n")


def test_a_mask_needs_a_loss_that_can_pass_over(tmp_path: Path) -> None:
    (tmp_path / "d.npz").touch()
    start = f"{START}data: {{npz: d.npz, task: sequence, mask: 0}}\n"
    for loss in ("mse", "{name: sparse_categorical_crossentropy, ignore_class: 3}"):
        assert "training > loss: data > mask works with" in refusal(tmp_path, f"{start}training: {{loss: {loss}}}\n")
    (tmp_path / "job.yaml").write_text(start)
    assert load_job(tmp_path / "job.yaml").training.loss.arguments == {"ignore_class": -1}
