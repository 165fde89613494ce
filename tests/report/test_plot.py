"""Curves of runs as pictures; how they look was judged by eye, that they are drawn and readable is tested here."""

import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest

from vcdl.errors import GridError
from vcdl.journal.monitor import EpochDetail
from vcdl.report.plot import Curve, figure_of, plot_curves

pytestmark = pytest.mark.slow

RISING = tuple(EpochDetail(e, 1 - 1 / e, 0.9 - 1 / e, 1.05 - 1 / e, wall_s=60.0 * e) for e in range(1, 21))
FALLING = tuple(EpochDetail(e, 1 / e, 0.9 / e, 1.1 / e, wall_s=90.0 * e) for e in range(1, 21))


def pixels(path: Path) -> npt.NDArray[np.float32]:
    """Shape (height, width, 4)."""
    image = matplotlib.image.imread(path)
    assert isinstance(image, np.ndarray)
    return image


def colours(path: Path) -> set[tuple[int, ...]]:
    return {
        tuple(colour) for colour in np.unique((pixels(path)[..., :3] * 255).round().astype(int).reshape(-1, 3), axis=0)
    }


def test_a_curve_is_drawn_with_its_band(tmp_path: Path) -> None:
    output = tmp_path / "curves.png"
    plot_curves([Curve("demo", RISING)], output, "demo")
    height, width, _ = pixels(output).shape
    assert (width, height) == (1200, 720)
    assert output.read_bytes().startswith(b"\x89PNG\r\n")
    blue, band = (0, 114, 178), (204, 226, 239)  # the line's colour, and a fifth of it on white
    assert blue in colours(output)
    assert any(max(abs(a - b) for a, b in zip(colour, band, strict=True)) <= 1 for colour in colours(output))


def test_a_single_run_has_its_epochs_along_the_top_and_a_legend_that_says_what_is_drawn() -> None:
    (axes,) = figure_of([Curve("demo", RISING)], "demo").axes
    (top,) = axes.child_axes
    assert top.get_xlabel() == "epoch"
    assert [int(label.get_text()) for label in top.get_xticklabels()] == [*range(2, 21, 2)]
    assert list(top.get_xticks()) == [float(minutes) for minutes in range(2, 21, 2)]
    assert legend(axes) == ["mean of an epoch", "its lowest to its highest evaluation"]


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_run_without_a_finished_epoch_still_has_a_picture(tmp_path: Path) -> None:
    plot_curves([Curve("demo", ())], tmp_path / "empty.png", "demo")
    assert pixels(tmp_path / "empty.png").size > 0


def test_an_epoch_that_diverged_does_not_stop_the_picture(tmp_path: Path) -> None:
    nan = float("nan")
    curve = Curve("demo", (FALLING[0], EpochDetail(2, nan, nan, nan, 120.0)), "loss")
    plot_curves([curve], tmp_path / "nan.png", "demo")
    assert (0, 114, 178) in colours(tmp_path / "nan.png")


@pytest.mark.parametrize(("ending", "begin"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_ending_of_the_name_is_the_format(tmp_path: Path, ending: str, begin: bytes) -> None:
    output = tmp_path / f"curve.{ending}"
    plot_curves([Curve("demo", RISING)], output, "demo")
    assert output.read_bytes().startswith(begin)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(GridError, match=r"matplotlib is not installed: `pip install 'vcdl\[plot\]'`"):
        plot_curves([Curve("demo", RISING)], tmp_path / "curves.png", "demo")
