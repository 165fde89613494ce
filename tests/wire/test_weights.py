"""Weights as one flat vector, and the file they travel in."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.errors import FileUnavailable, StoreError, WeightsFileError
from vcdl.wire.hdf5_form import WEIGHTS
from vcdl.wire.layout import Layout, Variable, assign, flatten
from vcdl.wire.params import ParamsHeader, write_params
from vcdl.wire.weights import change_header, open_weights, read_header, read_weights, write_weights

HEADER = ParamsHeader("digits", 142, "0123456789abcdef").to_json()


@pytest.fixture(scope="module")
def model() -> Any:
    import keras

    layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((4,)), *layers])


@pytest.mark.parametrize("size", [0, 1, 7, 100_000])
def test_what_is_written_is_read_back_bit_by_bit(tmp_path: Path, size: int) -> None:
    vector = np.random.default_rng(size).normal(size=size).astype(np.float32)
    write_weights(tmp_path / "params.h5", vector, HEADER)
    read, header = read_weights(tmp_path / "params.h5", size)
    assert read.tobytes() == vector.tobytes()
    assert header == HEADER == read_header(tmp_path / "params.h5", size)
    assert ParamsHeader.from_json(header) == ParamsHeader("digits", 142, "0123456789abcdef")


def test_a_header_is_changed_in_place_and_the_weights_stay(tmp_path: Path) -> None:
    path, vector = tmp_path / "params.h5", np.arange(7, dtype=np.float32)
    for before, after in (("short", "a much longer header" * 100), ("long" * 100, "short")):
        write_weights(path, vector, before)
        change_header(path, WEIGHTS, range(7, 8), lambda header: header.replace(before, after))  # noqa: B023
        read, header = read_weights(path, 7)
        assert (read.tolist(), header) == (vector.tolist(), after)


@pytest.mark.parametrize(
    ("begin", "end", "parts"),
    [
        (0, 3, [((0, 3), True)]),
        (1, 12, [((0, 3), True), ((3, 6), False), ((6, 9), True), ((9, 11), False)]),
        (5, 6, [((0, 1), False)]),
        (6, 11, [((0, 1), False), ((1, 4), True), ((4, 5), False)]),
        (8, 10, [((0, 2), True)]),
        (11, 14, [((0, 1), False), ((1, 3), True)]),
    ],
)
def test_a_block_is_cut_where_statistics_begin_and_end(
    begin: int, end: int, parts: list[tuple[tuple[int, int], bool]]
) -> None:
    sizes = {"kernel": 4, "norm/moving_mean": 3, "bias": 3, "other/moving_variance": 2, "last": 2}
    ends = np.cumsum(list(sizes.values())).tolist()
    places = zip(sizes.items(), ends, strict=True)
    layout = Layout(tuple(Variable(path, (size,), behind - size) for (path, size), behind in places))
    assert [((part.start, part.stop), trained) for part, trained in layout.parts(begin, end)] == parts


def test_second_moments_are_those_of_an_optimizer_and_no_variance_of_the_model() -> None:
    layout = Layout((Variable("kernel", (4,), 0), Variable("norm/moving_variance", (3,), 4)))
    moments = [("adam/kernel_momentum", (4,)), ("adam/kernel_velocity", (4,)), ("adam/bias_velocity", (2,))]
    assert layout.with_moments(moments).second_moments == [(11, 17)], "neighbours are one part"
    assert layout.second_moments == []
    assert layout.with_moments(moments).statistics == [(4, 17)]


def test_a_vector_is_read_into_memory_that_is_there(tmp_path: Path) -> None:
    write_weights(tmp_path / "params.h5", np.arange(5, dtype=np.float32), HEADER, durable=True)
    out = np.empty(5, np.float32)
    assert read_weights(tmp_path / "params.h5", 5, out)[0] is out
    assert list(out) == [0, 1, 2, 3, 4]


def test_a_header_that_is_too_long_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    write_weights(tmp_path / "params.h5", np.ones(1, np.float32), "x" * 60_000)
    assert len(read_header(tmp_path / "params.h5", 1)) == 60_000
    with pytest.raises(ValueError, match="60 000 bytes"):
        write_weights(tmp_path / "params.h5", np.ones(1, np.float32), "x" * 60_001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ("[" * 50_000, "damaged"),
        ('{"format": 2, "job": "a"}', "damaged"),
        ('{"format": 2, "job": "a", "version": "x", "layout": "y", "checksum": ""}', "damaged"),
        ('{"format": 3, "job": "a", "version": 1, "layout": "y"}', "format 3, this version reads 2"),
        ('{"format": 2.0, "job": "a", "version": 1, "layout": "y"}', "format 2.0, this version reads 2"),
        ('{"format": true, "job": "a", "version": 1, "layout": "y"}', "format True, this version reads 2"),
    ],
)
def test_a_damaged_header_is_named(text: str, message: str) -> None:
    with pytest.raises(WeightsFileError, match=message):
        ParamsHeader.from_json(text)


def test_a_missing_file_and_a_model_of_another_size_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsFileError, match="No such file"):
        read_weights(tmp_path / "params.h5", 3)
    write_weights(tmp_path / "params.h5", np.ones(3, np.float32), HEADER)
    with pytest.raises(WeightsFileError, match="not a plain weights file of 4 float32 numbers"):
        read_weights(tmp_path / "params.h5", 4)


def test_a_file_that_this_machine_cannot_read_is_no_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "params.h5"
    path.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    for read in (read_header, read_weights):
        with pytest.raises(FileUnavailable) as caught:
            read(path, 3)
        assert str(caught.value).startswith(f"{path} is there, but this machine cannot read it (Input/output error): ")
        assert not isinstance(caught.value, StoreError), "nobody reads that the store is away"


def test_of_a_file_that_is_too_large_only_the_begin_is_looked_at(tmp_path: Path) -> None:
    with (tmp_path / "params.h5").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)  # a terabyte of nothing
    for read in (read_header, read_weights):
        with pytest.raises(WeightsFileError, match=r"\(1099511627776 bytes\) is not a plain weights file"):
            read(tmp_path / "params.h5", 3)


@pytest.mark.keras
def test_the_layout_names_every_variable_in_the_order_of_the_vector(model: Any) -> None:
    layout = Layout.of(model)
    shapes = [variable.shape for variable in layout.variables]
    assert shapes == [(4, 3), (3,), (3,), (3,), (3,), (3,), (3, 2), (2,)], "the moving averages count as well"
    assert [variable.offset for variable in layout.variables] == [0, 12, 15, 18, 21, 24, 27, 33]
    assert layout.size == 35 == flatten(model).size


def test_two_models_share_a_fingerprint_only_when_paths_and_shapes_agree() -> None:
    def of(path: str, *shape: int) -> str:
        return Layout((Variable(path, shape, 0),)).fingerprint

    assert of("a/kernel", 2, 3) == of("a/kernel", 2, 3)
    assert len({of("a/kernel", 2, 3), of("a/kernel", 3, 2), of("b/kernel", 2, 3), of("a/kernel", 6)}) == 4
    assert len(of("a/kernel", 2, 3)) == 16
    assert Layout(()).size == 0


@pytest.mark.keras
def test_a_model_gets_back_what_was_taken_from_it(model: Any) -> None:
    vector = np.arange(35, dtype=np.float32)
    assign(model, vector)
    assert np.array_equal(flatten(model), vector)
    assert np.array_equal(model.get_weights()[0], np.arange(12).reshape(4, 3))


@pytest.mark.keras
def test_a_vector_of_another_model_is_refused(model: Any) -> None:
    with pytest.raises(WeightsFileError, match="34 weights for a model of 35"):
        assign(model, np.zeros(34, np.float32))


def test_weights_that_are_not_those_that_were_written_are_not_read(tmp_path: Path) -> None:
    path, vector = tmp_path / "params.h5", np.arange(1000, dtype=np.float32)
    write_params(path, vector, ParamsHeader("digits", 3, "0" * 16))
    assert read_weights(path, 1000)[0].tobytes() == vector.tobytes()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 1024)
        file.write(bytes(512))
    with pytest.raises(WeightsFileError, match=r"params\.h5 is damaged: its weights are not those that were written"):
        read_weights(path, 1000)
    with open_weights(path, 1000) as file_of:
        for begin in (0, 300, 600):
            file_of.read(begin, np.empty(300, np.float32))
        with pytest.raises(WeightsFileError, match="is damaged"):
            file_of.read(900, np.empty(100, np.float32))
