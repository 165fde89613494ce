"""Confusion matrices: counts, the file of numbers, the picture."""

import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from vcdl.report.confusion_matrix import ConfusionMatrix

Y = np.array([0, 0, 1, 2, 2, 2])
OUTPUTS = np.array([[9, 0, 0], [0, 0, 9], [0, 9, 0], [0, 0, 9], [0, 0, 9], [9, 0, 0]], np.float32)
COUNTS = [[1, 0, 1], [0, 1, 0], [1, 0, 2]]


def test_the_picture_calls_things_by_their_usual_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []

    def keep(figure: Figure, path: Path, **_: object) -> None:
        drawn.append(figure)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", keep)
    counts = np.array([[964, 36], [0, 0]])
    ConfusionMatrix(counts, ("a", "b")).draw(tmp_path / "m.png", "demo")
    (axes,) = drawn[0].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert axes.get_title() == "demo\n1 000 samples, accuracy 0.964"


def test_rows_are_true_classes_and_columns_what_the_model_gives() -> None:
    matrix = ConfusionMatrix.of([(Y, OUTPUTS)], ())
    assert matrix.counts.tolist() == COUNTS
    assert matrix.names == ("0", "1", "2")
    assert matrix.accuracy == 4 / 6


def test_batches_add_up_and_labels_of_no_class_do_not_count() -> None:
    batches = [(Y[:2], OUTPUTS[:2]), (Y[2:], OUTPUTS[2:]), (np.array([-1, 3]), OUTPUTS[:2])]
    assert ConfusionMatrix.of(batches, ()).counts.tolist() == COUNTS


@pytest.mark.parametrize(("threshold", "counts"), [(0.5, [[2, 0], [1, 1]]), (0.0, [[1, 1], [0, 2]])])
def test_one_output_means_class_1_beyond_its_threshold(threshold: float, counts: list[list[int]]) -> None:
    outputs = np.array([[-0.1], [0.2], [0.3], [0.9]])
    assert ConfusionMatrix.of([(np.array([0, 0, 1, 1]), outputs)], (), threshold).counts.tolist() == counts


def test_outputs_that_no_sample_has_are_rows_of_zeros_with_their_number_for_a_name() -> None:
    matrix = ConfusionMatrix.of([(np.array([1]), np.array([[0.1, 0.8, 0.1]]))], ("no", "yes"))
    assert matrix.counts.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert matrix.names == ("no", "yes", "2")


def test_the_file_has_the_names_and_is_read_by_any_program(tmp_path: Path) -> None:
    names = ("plain", 'with "quotes", and a comma', "line\nbreak")
    ConfusionMatrix.of([(Y, OUTPUTS)], names).write(tmp_path / "matrix.csv")
    with (tmp_path / "matrix.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["true class", *names]
    assert [row[0] for row in rows] == list(names)
    assert [[int(count) for count in row[1:]] for row in rows] == COUNTS
