"""A job's model from a preset of KerasHub, and the way back."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.hub_presets import LENGTH, WORDS, bert_preset, gpt2_preset, vit_preset
from vcdl.client.model import load_model
from vcdl.data.readers.preset_tokens import PresetTokens
from vcdl.errors import DataError, ModelError, RunFolderError
from vcdl.job import load_job, save_job
from vcdl.job.model import LoraSettings, ModelSettings
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.models.build import build_model
from vcdl.models.hub import preset_model, write_preset
from vcdl.remote.parcel import parcel_of
from vcdl.run.export import export_preset, newest_version
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.wire.layout import assign
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import Named

pytestmark = [pytest.mark.keras, pytest.mark.slow]
TEXTS = [" ".join(WORDS[at % 9] for at in range(start, start + 2 + start % 5)) for start in range(24)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A preset of a classifier of texts."""
    return bert_preset(tmp_path_factory.mktemp("bert") / "preset")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A preset of a language model."""
    return gpt2_preset(tmp_path_factory.mktemp("gpt2") / "preset")


def built(settings: ModelSettings, *about: Any, **more: Any) -> Any:
    """The model that clients load, with its weights."""
    made = build_model(settings, *about, **more)
    model = load_model(made.json, made.frozen)
    assign(model, made.weights)
    return model


def of_hub(preset: Path, kind: str, **more: Any) -> tuple[Any, Any]:
    """KerasHub's own model of a preset, and its preprocessor, which is taken off."""
    from keras_hub import models

    model = getattr(models, kind).from_preset(str(preset), **more)
    preprocessor, model.preprocessor = model.preprocessor, None
    return model, preprocessor


def test_texts_are_classified_as_by_keras_hub_from_their_tokens_alone(bert: Path) -> None:
    model = built(ModelSettings(hub=bert), (LENGTH,), 2)
    x = np.stack(PresetTokens(bert, LENGTH).of(TEXTS))
    theirs, preprocessor = of_hub(bert, "TextClassifier", activation="softmax")
    samples = preprocessor(TEXTS)
    assert {len(row.nonzero()[0]) for row in x} == {4, 5, 6, 7, 8}
    assert list(samples) == ["token_ids", "padding_mask", "segment_ids"]
    np.testing.assert_array_equal(x, samples["token_ids"])
    np.testing.assert_allclose(model.predict(x, verbose=0), theirs.predict(samples, verbose=0), atol=1e-6)


def test_another_number_of_classes_gets_a_fresh_last_layer(bert: Path) -> None:
    two = built(ModelSettings(hub=bert), (LENGTH,), 2).get_weights()
    three = built(ModelSettings(hub=bert), (LENGTH,), 3).get_weights()
    assert three[-1].shape == (3,)
    for one, other in zip(two[:-2], three[:-2], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("classes", "train", "whole"), [(2, None, set()), (3, None, {"logits"}), (3, ("*pooled_dense",), {"pooled_dense"})]
)
def test_lora_leaves_no_layer_frozen_whose_weights_were_drawn(
    classes: int, train: tuple[str, ...] | None, whole: set[str], bert: Path
) -> None:
    model = built(ModelSettings(hub=bert, train=train, lora=LoraSettings(rank=2)), (LENGTH,), classes)
    kernels = {weight.path.split("/")[-2] for weight in model.trainable_weights if weight.path.endswith("/kernel")}
    assert {name.removeprefix("bert_backbone_") for name in kernels} == whole
    assert any("lora_kernel_a" in weight.path for weight in model.trainable_weights)


@pytest.mark.parametrize(("classes", "train"), [(2, None), (3, ["logits"])])
def test_a_service_is_told_which_layers_the_preset_had_no_weights_for(
    classes: int, train: list[str] | None, bert: Path, tmp_path: Path
) -> None:
    """It gets the model as a file, in which drawn weights look like any others."""
    np.savez(tmp_path / "d.npz", x_train=np.ones((60, LENGTH), np.int32), y_train=np.arange(60) % classes)
    (tmp_path / "job.yaml").write_text(f"name: a\nmodel: {{hub: {bert}, lora: {{rank: 2}}}}\ndata: {{npz: d.npz}}\n")
    with parcel_of(tmp_path / "job.yaml") as parcel:
        model = json.loads(parcel.job)["model"]
    assert (model["keras"], model.get("train")) == ("model.keras", train)


def test_data_with_all_inputs_bring_their_own(bert: Path) -> None:
    shapes = {"token_ids": (LENGTH,), "padding_mask": (LENGTH,), "segment_ids": (LENGTH,)}
    model = built(ModelSettings(hub=bert), shapes, 2)
    theirs, preprocessor = of_hub(bert, "TextClassifier", activation="softmax")
    samples = preprocessor(x=(TEXTS, TEXTS[::-1]))  # two segments
    assert np.asarray(samples["segment_ids"]).any()
    np.testing.assert_allclose(model.predict(samples, verbose=0), theirs.predict(samples, verbose=0), atol=1e-6)


def test_a_language_model_says_the_next_token_as_keras_hub_does(gpt2: Path) -> None:
    import keras

    tokens = PresetTokens(gpt2, None)
    assert tokens.names[:3] == ("a", "b", "c")
    x = np.stack([row[:6] for row in tokens.of(["abcdefg", "hijklmnop"])])
    model = built(ModelSettings(hub=gpt2), (6,), len(tokens.names), "sequence")
    theirs, _ = of_hub(gpt2, "CausalLM")
    logits = theirs.predict({"token_ids": x, "padding_mask": np.ones_like(x)}, verbose=0)
    np.testing.assert_allclose(model.predict(x, verbose=0), keras.ops.softmax(logits), atol=1e-6)


def test_pictures_are_scaled_as_the_preset_says(tmp_path: Path) -> None:
    preset = vit_preset(tmp_path / "preset")
    model = built(ModelSettings(hub=preset), (16, 16, 3), 3)
    theirs, preprocessor = of_hub(preset, "ImageClassifier", activation="softmax")
    x = np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3)).astype(np.float32)
    np.testing.assert_allclose(model.predict(x, verbose=0), theirs.predict(preprocessor(x), verbose=0), atol=1e-6)


def job_of(folder: Path, preset: Path, model: str = "") -> Path:
    """A job on labelled texts."""
    lines = [f"{'good' if 'good' in text else 'other'}\t{text}" for text in TEXTS]
    (folder / "texts.tsv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "job.yaml").write_text(
        f"name: a\nmodel: {{hub: {preset}{model}}}\ndata: {{shards: 2, from: {{path: texts.tsv, as: text, "
        f"lines: true, window: {LENGTH}, tokenizer: {preset}}}}}\ntraining: {{learning_rate: 0.001}}\n"
    )
    return folder / "job.yaml"


def prepared(path: Path, job: Any) -> RunFolder:
    """A run before its first subtask."""
    folder = RunFolder(path)
    folder.create()
    save_job(job, folder.job_file)
    prepare(folder, job, RunObserver())
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", ["", ", lora: {rank: 2}"])
def test_a_run_is_written_back_and_predicts_the_same_in_plain_keras_hub(tmp_path: Path, bert: Path, model: str) -> None:
    import keras

    folder = prepared(tmp_path / "run", load_job(job_of(tmp_path, bert, model)))
    run = Run.open(folder)
    drawn = np.random.default_rng(1).normal(0, 0.1, run.layout.size).astype(np.float32)
    write_weights(folder.snapshot(7), drawn, "{}")
    output = tmp_path / "tuned"
    assert export_preset(folder, output, newest_version) == 7
    theirs, preprocessor = of_hub(output, "TextClassifier")
    assert preprocessor.sequence_length == LENGTH
    ours = run.load_model()
    assign(ours, drawn[: run.layout.model.size])
    x = np.stack(PresetTokens(bert, LENGTH).of(TEXTS))
    expected = keras.ops.convert_to_numpy(ours(x))
    np.testing.assert_allclose(theirs.predict(preprocessor(TEXTS), verbose=0), expected, atol=1e-6)
    with pytest.raises(RunFolderError, match="already exists"):
        export_preset(folder, output, newest_version)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "run", "texts.tsv", "tuned"]


def test_a_model_that_is_more_than_its_preset_is_not_written_back(tmp_path: Path, bert: Path) -> None:
    import keras

    model = preset_model(bert, (LENGTH,), 2, "classification").keras
    more = keras.Model(model.inputs, keras.layers.Dense(2, name="more")(model.outputs[0]))
    with pytest.raises(ModelError, match="the preset"):
        write_preset(bert, more, "classification", tmp_path / "out")


def test_a_run_of_another_model_has_no_preset(tmp_path: Path, bert: Path) -> None:
    job = load_job(job_of(tmp_path, bert))
    folder = prepared(tmp_path / "run", job.model_copy(update={"model": ModelSettings(builtin=Named("mlp"))}))
    with pytest.raises(RunFolderError, match="its job has no model > hub to write back to"):
        export_preset(folder, tmp_path / "out", newest_version)


def test_frozen_layers_and_lora_work_on_a_preset(bert: Path) -> None:
    head = build_model(ModelSettings(hub=bert, train=("logits",)), (LENGTH,), 2)
    assert len(head.weights) == 8 * 2 + 2
    adapted = build_model(ModelSettings(hub=bert, lora=LoraSettings(rank=2)), (LENGTH,), 2)
    assert 0 < len(adapted.weights) < len(adapted.frozen)


@pytest.mark.parametrize(
    ("files", "about", "says"),
    [
        ({}, ((8,), 2, "classification"), "is no preset, it has no config.json: write one with"),
        ({"config.json": {"a": 1}}, ((8,), 2, "classification"), "KerasHub loads no TextClassifier from"),
        ({"config.json": {"a": 1}}, ((8,), 2, "autoencoder"), "model > hub has no model for data > task: autoencoder"),
    ],
)
def test_what_is_no_preset_says_so(tmp_path: Path, files: dict[str, Any], about: Any, says: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=says):
        preset_model(tmp_path, *about)


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda folder: preset_model(folder, (8,), 2, "classification"), ModelError),
        (lambda folder: PresetTokens(folder, 8), DataError),
    ],
)
def test_without_the_package_the_cure_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object], kind: type[Exception]
) -> None:
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(kind, match=r"pip install 'vcdl\[hub\]'"):
        use(tmp_path)


def test_a_language_models_preset_does_not_pack_texts_for_a_classifier(gpt2: Path) -> None:
    with pytest.raises(DataError, match="has no usable tokenizer"):
        PresetTokens(gpt2, 8)
