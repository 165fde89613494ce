"""From training samples to what a client multiplies and adds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.data import normalisation_of
from vcdl.job.data import DataSettings
from vcdl.wire.normalise import normalise
from vcdl.wire.workunit import Normalisation


def normalised(x: np.ndarray[Any, Any], how: str) -> np.ndarray[Any, Any]:
    settings = DataSettings.model_validate({"dataset": "digits", "normalise": how})
    return normalise(x, normalisation_of(x, settings))


def images(channels: int | None = 3) -> np.ndarray[Any, Any]:
    shape = (5000, 4, 4) if channels is None else (5000, 4, 4, channels)
    x = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    x.flat[0], x.flat[1] = 0, 255
    return x


def test_scaled_images_go_from_zero_to_one_in_float32() -> None:
    scaled = normalised(images(), "scale")
    assert scaled.dtype == np.float32
    assert (scaled.min(), scaled.max()) == (0.0, 1.0)
    np.testing.assert_allclose(scaled, images() / 255, atol=1e-6)


def test_grey_images_are_standardised_as_a_whole() -> None:
    x = images(channels=None)
    x[:, :, 0] //= 4
    standard = normalised(x, "standardise")
    assert abs(float(standard.mean())) < 1e-5
    assert abs(float(standard[:, :, 0].mean())) > 0.1, "one column is not moved to the mean by itself"


def test_each_feature_of_a_table_is_standardised_even_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal([1e6, -3.0], [0.5, 100.0], (9000, 2))
    standard = normalised(table, "standardise").astype(np.float64)
    np.testing.assert_allclose(standard.std(axis=0), 1, rtol=0.02)


def test_what_never_varies_is_not_divided_by_zero() -> None:
    x = np.full((10, 3), 7.0)
    for how in ("scale", "standardise"):
        np.testing.assert_allclose(normalised(x, how), 0)


def test_none_leaves_the_numbers() -> None:
    np.testing.assert_array_equal(normalised(images(), "none"), images().astype(np.float32))


def test_a_normalisation_for_other_data_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        normalise(np.zeros((2, 4)), Normalisation((1.0, 2.0), (0.0, 0.0)))


def test_auto_standardises_all_but_pictures() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(3, 1, (50, 4)).astype(np.float32)
    series = rng.normal(3, 1, (50, 6, 2)).astype(np.float32)
    heights = rng.normal(3, 1, (50, 6, 6, 1)).astype(np.float32)
    grey = rng.integers(0, 256, (50, 6, 6), np.uint8)
    scale, standardise = (DataSettings.model_validate({"npz": "d", "normalise": n}) for n in ("scale", "standardise"))
    auto = DataSettings(npz=Path("d"))
    floats = grey.astype(np.float32)
    pictures = ((x, scale) for x in (grey, grey[..., None], floats, floats[..., None], floats / 255))
    numbers = ((x, standardise) for x in (table, table.astype(np.uint8), series, heights))
    for x, named in (*numbers, *pictures):
        assert normalisation_of(x, auto) == normalisation_of(x, named)


def test_auto_scales_what_an_autoencoder_gives_back() -> None:
    """It often ends in a sigmoid."""
    x = np.random.default_rng(0).random((50, 4), np.float32)
    of_task = {task: DataSettings.model_validate({"npz": "d", "task": task}) for task in ("autoencoder", "regression")}
    assert len(normalisation_of(x, of_task["autoencoder"]).scale) == 1
    assert len(normalisation_of(x, of_task["regression"]).scale) == 4


@pytest.mark.parametrize("size", [1e-24, 1e25])
def test_numbers_whose_squares_float32_does_not_hold_are_standardised(size: float) -> None:
    x = (np.random.default_rng(0).normal(3, 1, (50, 2)) * size).astype(np.float32)
    found = normalisation_of(x, DataSettings(npz=Path("d")))
    assert found.scale * x.astype(np.float64).std(axis=0) == pytest.approx([1, 1])


def test_a_column_that_float32_holds_as_constant_is_not_blown_up() -> None:
    x = np.full((1000, 2), 0.1, np.float32)  # its mean in float64 differs from 0.1f by rounding
    x[:, 1] = 1e6 + np.arange(1000) * 1e-5
    found = normalisation_of(x, DataSettings(npz=Path("d.npz"), normalise="standardise"))
    assert found.scale == (1.0, 1.0)
