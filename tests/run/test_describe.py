"""The figures of `vcdl describe`, held against real files."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.client.model import load_model
from vcdl.commands.describe import _lines
from vcdl.data import ensure_shards, load_dataset
from vcdl.job import Job
from vcdl.job.model import ModelSettings
from vcdl.models.build import build_model_json, initial_weights
from vcdl.run.describe import describe_job
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import write_weights

pytestmark = pytest.mark.keras


def job(**sections: Any) -> Job:
    defaults: dict[str, Any] = {
        "name": "small",
        "model": {"builtin": "small_cnn"},
        "data": {"dataset": "fashion-mnist"},
    }
    return Job.model_validate({**defaults, **sections})


def test_the_papers_model_and_shards_are_described_without_the_data() -> None:
    """The model at a small depth: tests/models/test_build.py has the sizes of the paper's own, which takes long
    to make.
    """
    resnet = {"builtin": {"name": "resnet_v2", "depth": 20}}
    paper = describe_job(
        job(model=resnet, data={"dataset": "cifar10", "shards": 50, "validation": 5000}, preset="paper")
    )
    made = load_model(build_model_json(ModelSettings.model_validate(resnet), (32, 32, 3), 10))
    assert (paper.model.layers, paper.model.parameters) == (len(made.layers), made.count_params())
    assert paper.model.trainable_parameters == sum(int(np.prod(w.shape)) for w in made.trainable_weights)
    assert (paper.shards.count, paper.shards.smallest, paper.shards.largest) == (50, 900, 900)
    assert (paper.shards.validation_samples, paper.shards.test_samples) == (5000, 10_000)
    assert [file.name for file in paper.downloads] == ["workunit.json", "model.json", "params.h5", "shard.npz"]
    assert [file.name for file in paper.uploads] == ["update.h5"]
    assert paper.upload_bytes == pytest.approx(4 * made.count_params(), rel=0.01)


def test_layers_are_named_as_patterns_name_them_and_say_what_is_frozen() -> None:
    described = describe_job(job(model={"builtin": "small_cnn", "train": ["output"]}))
    layers = described.model.layers_with_weights
    assert [layer.path for layer in layers if layer.trainable_parameters] == ["output"]
    assert sum(layer.parameters for layer in layers) == described.model.parameters
    lines = [words for _, words in _lines(described)]
    assert any(re.fullmatch(rf"{layers[0].path} +[\d ]+, frozen", line) for line in lines)
    assert any(re.fullmatch(r"output +\d+", line) for line in lines)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dataset", ["digits", "fashion-mnist"])
def test_sizes_are_those_of_the_real_files(dataset: str, tmp_path: Path) -> None:
    if dataset == "fashion-mnist" and not Path("/usr/share/datasets/fashion-mnist").exists():
        pytest.skip("dataset-fashion-mnist is not installed")
    small = job(data={"dataset": dataset, "shards": 10}, training={"share_optimizer_state": "none"})
    described = {file.name: file.size_bytes for file in describe_job(small).downloads}

    data = load_dataset(small.data, small.seed)
    shards = ensure_shards(tmp_path, data, small.data, small.seed)
    model_json = build_model_json(small.model, data.input_shape, data.outputs)
    weights = initial_weights(model_json, small.seed)
    write_weights(tmp_path / "params.h5", weights, ParamsHeader("small", 1, "0" * 16).to_json())

    mean_bytes = np.mean([shard.size_bytes for shard in shards])
    assert described["shard.npz"] == pytest.approx(mean_bytes, rel=0.1)
    assert described["params.h5"] == pytest.approx((tmp_path / "params.h5").stat().st_size, rel=0.01)
    assert described["model.json"] == len(model_json.encode())
    assert {describe_job(small).shards.smallest, describe_job(small).shards.largest} == {
        shard.samples for shard in shards
    }


def test_moments_that_travel_are_counted() -> None:
    def bytes_up(moments: str) -> float:
        return describe_job(
            job(data={"dataset": "digits", "shards": 10}, training={"share_optimizer_state": moments})
        ).upload_bytes

    assert bytes_up("auto") == bytes_up("second_moment") == pytest.approx(2 * bytes_up("none"), rel=0.05)
    assert bytes_up("all") == pytest.approx(3 * bytes_up("none"), rel=0.05)


def test_an_npz_is_described_from_its_headers_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    np.savez_compressed(path, x_train=np.zeros((103, 7), np.float32), y_train=np.arange(103) % 3)
    table = describe_job(job(model={"builtin": "mlp"}, data={"npz": str(path), "shards": 10, "validation": 3}))
    assert (table.model.input_shape, table.model.outputs) == ((7,), 3)
    assert (table.shards.samples, table.shards.smallest, table.shards.largest) == (100, 10, 10)


def test_a_table_s_workunits_hold_a_scale_for_each_column(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=np.eye(300, dtype=np.float32), y_train=np.arange(300) % 2)

    def described(normalise: str) -> int | None:
        data = {"npz": tmp_path / "d.npz", "normalise": normalise}
        (workunit, *_) = describe_job(job(model={"builtin": "mlp"}, data=data)).downloads
        assert workunit.name == "workunit.json"
        return workunit.size_bytes

    assert described("auto") == described("standardise")
    assert described("auto") != described("scale")


def test_a_description_is_json_for_programs() -> None:
    described = describe_job(job())
    document = json.loads(described.to_json())
    assert document["model"]["parameters"] == 105_866
    assert document["shards"]["count"] == 50
    assert document["upload_bytes"] == described.upload_bytes
    assert document["download_bytes"] == sum(file["size_bytes"] for file in document["downloads"])


def test_settings_are_shown_with_every_default_and_preset_filled_in() -> None:
    settings = json.loads(describe_job(job(preset="paper", update={"alpha": "var"})).to_json())["settings"]
    assert settings["update"] == {"rule": "vc_asgd", "alpha": "var"}
    assert (settings["pacing"]["kind"], settings["validate"]["every"]) == ("epoch", "update")
    assert (settings["training"]["learning_rate"], settings["training"]["batch_size"]) == (0.001, 32)
