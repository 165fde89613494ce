"""The job file: what it accepts, how it refuses, and that document, schema and examples agree."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.places import ROOT
from vcdl.errors import JobError
from vcdl.job import Job, load_frozen_job, load_job, save_job
from vcdl.job.data import DataSettings
from vcdl.job.model import BUILTINS, LoraSettings, ModelSettings
from vcdl.job.outputs import OutputSettings
from vcdl.job.preset import PRESETS
from vcdl.job.reader import READERS, Reader
from vcdl.job.schema import job_of
from vcdl.job.stop import StopSettings
from vcdl.job.training import LearningRateSettings, TrainingSettings
from vcdl.job.transport import Int8Arguments, TopKArguments
from vcdl.job.update import RULES
from vcdl.rules.base import Rule
from vcdl.rules.damping import STALENESS, Constant, Hinge, Polynomial
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.forecast import Forecast
from vcdl.rules.ramp import Ramp
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.wire.workunit import Named
from vcdl.yaml_schema.reading import MAX_SHOWN
from vcdl.yaml_schema.section import Section

DOCUMENT = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")
JOB_FILES = sorted((ROOT / "examples").glob("*.yaml"))
MINIMAL = "name: a\nmodel: {builtin: small_cnn}\ndata: {dataset: digits}\n"


def load(folder: Path, text: str | bytes) -> Job:
    path = folder / "job.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_job(path, slots=2)


def refusal(folder: Path, text: str | bytes) -> str:
    """The message, with `job.yaml` for the file's path."""
    with pytest.raises(JobError) as caught:
        load(folder, text)
    return str(caught.value).replace(str(folder) + "/", "")


def in_section(section: str, line: str) -> str:
    """A job with this line in this section."""
    required = {"model": "builtin: small_cnn", "data": "dataset: digits"}
    if line.startswith(("keras_json", "keras:", "weights:", "python:", "npz")):
        del required[section]  # the one that the line stands in for
    parts: dict[str, list[str]] = {key: [] for key in ("model", "data", section)} | {
        key: [value] for key, value in required.items()
    }
    parts[section].append(line)
    if line.startswith(("alpha", "horizon")):
        parts[section].append("rule: vc_asgd")
    return "name: a\n" + "".join(f"{key}:\n" + "".join(f"  {v}\n" for v in part) for key, part in parts.items())


# -- what is accepted


def test_a_minimal_job_has_every_default(tmp_path: Path) -> None:
    job = load(tmp_path, MINIMAL.replace("digits", "fashion-mnist"))
    assert (job.name, job.seed, job.model.builtin) == ("a", 1, Named("small_cnn"))
    assert (job.data.shards, job.data.split, job.data.validation, job.data.normalise) == (50, "iid", 0.1, "auto")
    assert (job.training.optimizer, job.training.share_optimizer_state, job.training.batch_size) == (
        Named("adam"),
        "auto",
        16,
    )
    assert job.training.learning_rate == LearningRateSettings(
        peak=0.0017, schedule="quadratic", end_factor=0.02, short_job_boost="auto"
    )
    assert job.training.loss == Named("sparse_categorical_crossentropy")
    assert job.training.metrics == (Named("accuracy"),)
    assert job.update == Forecast()
    assert (job.pacing.kind, job.pacing.queue_ahead, job.pacing.grows_over) == ("rolling", "auto", 0.1)
    assert (job.stop.epochs, job.stop.target_accuracy, job.stop.wall_time_s, job.stop.patience) == (20,) + 3 * (None,)
    assert (job.validate_.every, job.validate_.samples) == (10, 2000)
    assert (job.grid.workers, job.grid.threads, job.grid.timeout_s, job.grid.tries) == ("auto", 1, 600.0, 5)


def test_a_regression_gets_its_own_loss_and_metrics_unless_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "d.npz").touch()
    start = "name: a\nmodel: {builtin: mlp}\ndata: {npz: d.npz, task: regression}\n"
    plain = load(tmp_path, start).training
    assert (plain.loss, plain.metrics) == (Named("mean_squared_error"), (Named("mean_absolute_error"),))
    own = load(tmp_path, start + "training: {loss: {name: huber, delta: 2}, metrics: []}\n").training
    assert (own.loss, own.metrics) == (Named("huber", {"delta": 2}), ())


@pytest.mark.parametrize("task", ["sequence", "segmentation"])
def test_a_task_of_many_places_gets_muon_unless_its_rate_is_adams(task: str, tmp_path: Path) -> None:
    (tmp_path / "d.npz").touch()

    def chosen(training: str = "{}", data: str = "") -> tuple[str, float]:
        start = f"name: a\nmodel: {{python: m:n}}\ndata: {{npz: d.npz, task: {task}{data}}}\n"
        settings = load(tmp_path, f"{start}training: {training}\n").training
        return settings.optimizer.name, settings.peak_rate

    assert chosen() == chosen(data=", mask: 0") == ("muon", 0.015)
    assert chosen("{batch_size: 4}") == ("muon", 0.015)
    assert chosen("{optimizer: adam}") == ("adam", 0.0017)
    assert chosen("{learning_rate: 0.01}") == ("adam", 0.01)
    assert load(tmp_path, MINIMAL).training.optimizer == Named("adam")


@pytest.mark.parametrize(
    ("written", "number"), [("1e-3", 0.001), ("1E-3", 0.001), (".5", 0.5), ("5e0", 5.0), ("2", 2.0), ("+0.25", 0.25)]
)
def test_numbers_are_read_as_people_write_them(tmp_path: Path, written: str, number: float) -> None:
    job = load(tmp_path, MINIMAL + f"training: {{learning_rate: {written}}}\n")
    assert job.training.learning_rate == number
    assert isinstance(job.training.learning_rate, float)


def test_a_job_of_muon_damps_stale_uploads_more(tmp_path: Path) -> None:
    def update(optimizer: str, text: str = "") -> Any:
        return load(tmp_path, MINIMAL + f"training: {{optimizer: {optimizer}}}\n{text}").update

    assert update("Muon") == update("muon", "update: forecast\n") == Forecast(staleness_damping=0.3)
    assert update("{name: muon, momentum: 0.9}", "update: {horizon: 0}\n") == Forecast(staleness_damping=0.3, horizon=0)
    assert update("muon", "update: {staleness_damping: 0.15}\n") == Forecast()
    assert update("muon", "update: {rule: vc_asgd}\n") == VcAsgd()
    assert update("adam") == load(tmp_path, MINIMAL).update == Forecast()
    (tmp_path / "d.npz").touch()
    by_default = load(tmp_path, "name: a\nmodel: {python: m:n}\ndata: {npz: d.npz, task: sequence}\n")
    assert by_default.update == Forecast(staleness_damping=0.3)


@pytest.mark.parametrize(
    ("data", "update", "damping"),
    [
        ("split: dirichlet, concentration: 0.02", "", 0.6),
        ("split: dirichlet, concentration: 0.1", "", 0.15),
        ("split: iid", "", 0.15),
        ("split: dirichlet, concentration: 0.02", "update: {staleness_damping: 0.2}\n", 0.2),
    ],
)
def test_shards_of_a_single_class_damp_late_uploads_more(
    tmp_path: Path, data: str, update: str, damping: float
) -> None:
    text = f"name: a\nmodel: {{builtin: mlp}}\ndata: {{dataset: digits, {data}}}\n{update}"
    assert load(tmp_path, text).update == Forecast(staleness_damping=damping)


def test_each_rule_has_keys_of_its_own(tmp_path: Path) -> None:
    def update(text: str) -> Any:
        return load(tmp_path, MINIMAL + f"update: {text}\n").update

    assert update("{staleness_damping: 0.5}") == Forecast(staleness_damping=0.5)
    assert update("{rule: vc_asgd, alpha: 0.95}") == VcAsgd(alpha=0.95)
    ramp = Ramp.model_validate({"from": 0.3, "to": 0.98, "schedule": "linear"})
    assert update("{rule: vc_asgd, alpha: {from: 0.3, to: 0.98}}") == VcAsgd(alpha=ramp)
    assert update("fedbuff") == update("{rule: fedbuff}") == FedBuff(buffer=10)
    hinge = Hinge(slope=10.0, threshold=7)
    assert update("{rule: fedbuff, buffer: 4, staleness: {name: hinge, threshold: 7}}") == FedBuff(
        buffer=4, staleness=hinge
    )
    assert update("{rule: fedbuff, staleness: hinge}").staleness == Hinge()


def test_the_paper_s_preset_is_what_the_paper_did(tmp_path: Path) -> None:
    job = load(tmp_path, MINIMAL + "preset: paper\n")
    assert (job.pacing.kind, job.update, job.data.shards) == ("epoch", VcAsgd(alpha=0.95), 50)
    assert (job.training.optimizer, job.training.learning_rate) == (Named("adam"), 0.001)
    assert (job.training.batch_size, job.training.local_epochs, job.training.share_optimizer_state) == (32, 1, "none")
    assert (job.validate_.every, job.validate_.samples) == ("update", "all")
    assert (job.name, job.data.dataset, job.stop) == ("a", "digits", StopSettings())


def test_a_key_of_ones_own_wins_over_the_preset_s(tmp_path: Path) -> None:
    own = """preset: paper
update: {rule: vc_asgd, alpha: var}
training: {batch_size: 64}
pacing: rolling
"""
    job = load(tmp_path, MINIMAL.replace("digits}", "digits, shards: 5}") + own)
    assert (job.update, job.pacing.kind, job.data.shards) == (VcAsgd(alpha="var"), "rolling", 5)
    assert (job.training.batch_size, job.training.learning_rate) == (64, 0.001)
    assert load(tmp_path, MINIMAL + "preset: paper\nupdate: {rule: fedbuff}\n").update == FedBuff()
    assert load(tmp_path, MINIMAL + "preset: paper\nupdate: fedbuff\n").update == FedBuff()
    for same in ("update: vc_asgd", "update: {rule: vc_asgd}", "update: {}", ""):
        assert load(tmp_path, MINIMAL + f"preset: paper\n{same}\n").update == VcAsgd(alpha=0.95)
    with pytest.raises(JobError, match=r"update: expected one of: .*did you mean vc_asgd"):
        load(tmp_path, MINIMAL + "preset: paper\nupdate: vc_asg\n")


def test_a_frozen_job_shows_what_the_preset_stands_for_and_reads_back_equal(tmp_path: Path) -> None:
    job = load(tmp_path, MINIMAL + "preset: paper\nupdate: {rule: fedbuff, staleness: hinge}\n")
    save_job(job, tmp_path / "frozen.yaml")
    frozen = yaml.safe_load((tmp_path / "frozen.yaml").read_text())
    assert (frozen["preset"], frozen["pacing"]["kind"], frozen["validate"]["every"]) == ("paper", "epoch", "update")
    assert frozen["update"]["staleness"] == {"name": "hinge", "slope": 10.0, "threshold": 4}
    assert load_frozen_job(tmp_path / "frozen.yaml") == job


def test_a_preset_s_keys_are_those_of_the_schema() -> None:
    for values in PRESETS.values():
        for section, keys in values.items():
            known = RULES["vc_asgd"] if section == "update" else schema()[section]
            assert keys.keys() <= {info.alias or name for name, info in known.model_fields.items()}


def test_a_store_s_address_that_is_wrong_is_not_repeated_for_it_may_hold_a_password(tmp_path: Path) -> None:
    with pytest.raises(JobError) as refused:
        load(tmp_path, MINIMAL + "store: postgres://user:secret@host/0\n")
    assert "store > url: " in str(refused.value)
    assert "secret" not in str(refused.value)


def test_what_nobody_could_make_again_is_not_compared(tmp_path: Path) -> None:
    feedback = MINIMAL + "transport: {up: top_k, feedback: true}\n"
    assert "trust > verify: an upload with transport > feedback cannot be rebuilt" in refusal(tmp_path, feedback)
    assert load(tmp_path, feedback + "trust: own\n").transport.feedback
    assert load(tmp_path, feedback + "trust: {kind: strangers, verify: 0}\n").is_for_strangers


def test_words_that_yaml_1_1_takes_for_booleans_and_dates_stay_words(tmp_path: Path) -> None:
    job = load(tmp_path, MINIMAL.replace("name: a", "name: on"))
    assert job.name == "on"
    assert load(tmp_path, MINIMAL.replace("name: a", "name: 2024-01-01")).name == "2024-01-01"


def test_files_are_relative_to_the_job_file_and_absolute_in_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.json").touch()
    (tmp_path / "sub" / "job.yaml").write_text("name: a\nmodel: {keras_json: m.json}\ndata: {dataset: digits}\n")
    monkeypatch.chdir(tmp_path)
    assert load_job(Path("sub/job.yaml")).model.keras_json == (tmp_path / "sub" / "m.json").resolve()


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbf" + MINIMAL.encode()).name == "a"


def test_a_job_cannot_be_changed(tmp_path: Path) -> None:
    job = load(tmp_path, MINIMAL)
    for target, key in ((job, "name"), (job.data, "shards"), (job.training.optimizer, "name")):
        with pytest.raises((pydantic.ValidationError, AttributeError)):
            setattr(target, key, "other")


# -- how it refuses

ALPHA_WANTED = "expected a number between 0 and 1 (1 excluded) or var or {from: …, to: …}"
RATE_WANTED = "expected a number > 0 or {peak: …}"
RULE_WANTED = f"expected one of: {', '.join(RULES)}"
ELSE = "; a rule of another package: `pip install` that package next to vcdl"
WRONG_VALUES = [
    ("data", 'shards: "fifty"', 'data > shards: expected a whole number ≥ 1, got "fifty"'),
    ("data", "shards: 0", "data > shards: expected a whole number ≥ 1, got 0"),
    ("data", "shards: true", "data > shards: expected a whole number ≥ 1, got true"),
    ("data", "shards: 5.0", "data > shards: expected a whole number ≥ 1, got 5.0"),
    ("data", "shards:", "data > shards: expected a whole number ≥ 1, got nothing"),
    ("data", "shards: [1]", "data > shards: expected a whole number ≥ 1, got a list of 1"),
    (
        "data", "split: dirichlett",
        'data > split: expected one of: iid, dirichlet; got "dirichlett"; did you mean dirichlet?',
    ),
    ("data", "split: 3", "data > split: expected one of: iid, dirichlet; got 3"),
    (
        "data", "concentration: 1",
        "data > concentration: is used with `split: dirichlet` only; remove it, or set the split",
    ),
    (
        "data", "validation: 1.0",
        "data > validation: expected a whole number ≥ 1, or a fraction between 0 and 1 (both excluded), got 1.0",
    ),
    (
        "data", "validation: true",
        "data > validation: expected a whole number ≥ 1, or a fraction between 0 and 1 (both excluded), got true",
    ),
    ("data", "npz: none.npz", "data > npz: there is no file none.npz; a relative path starts at the job file's folder"),
    ("data", "npz: 5", "data > npz: expected the name of a file, got 5"),
    ("data", "shard: 5", "data > shard: unknown key; did you mean shards?"),
    (
        "training",
        "precision: mixed_float16",
        "training > precision: mixed_float16 needs loss scaling, which VCDL does not support; "
        "use mixed_bfloat16, which needs none",
    ),
    (
        "training", "precision: bfloat16",
        "training > precision: bfloat16 would round the weights too; use mixed_bfloat16, which keeps them in float32",
    ),
    (
        "training", "precision: float31",
        'training > precision: expected one of: float32, mixed_bfloat16; got "float31"; did you mean float32?',
    ),
    ("data", "normalise: full", 'data > normalise: expected one of: auto, scale, standardise, none; got "full"'),
    (
        "model", "keras_json: m.json",
        "model > keras_json: there is no file m.json; a relative path starts at the job file's folder",
    ),
    ("model", "python: build", 'model > python: expected package.module:function, got "build"'),
    ("model", "python_folder: .", "model > python_folder: is used with `python` only; remove it"),
    ("training", "learning_rate: 0", f"training > learning_rate: {RATE_WANTED}, got 0"),
    ("training", "learning_rate: .nan", f'training > learning_rate: {RATE_WANTED}, got ".nan"'),
    ("training", "learning_rate: 1e999", f"training > learning_rate: {RATE_WANTED}, got Infinity"),
    ("training", "learning_rate: false", f"training > learning_rate: {RATE_WANTED}, got false"),
    ("training", "optimizer: 5", "training > optimizer: expected a name, or {name: …} with its arguments, got 5"),
    (
        "training", "optimizer: {beta_1: 5}",
        "training > optimizer: expected a name, or {name: …} with its arguments, got keys (beta_1)",
    ),
    (
        "training", "optimizer: {name: sgd, learning_rate: 1}",
        "training > optimizer > learning_rate: belongs in training > learning_rate; move it there",
    ),
    (
        "training", "loss: {name: huber, delta: 1e999}",
        "training > loss: an argument is too large or is not plain data; write finite numbers",
    ),
    ("training", "metrics: accuracy", 'training > metrics: expected a list, such as [a, b], got "accuracy"'),
    (
        "training", "metrics: [accuracy, 5]",
        "training > metrics > 2: expected a name, or {name: …} with its arguments, got 5",
    ),
    (
        "training", "learning_rate: {peak: 1, end_facto: 0}",
        "training > learning_rate > end_facto: unknown key; did you mean end_factor?",
    ),
    (
        "training",
        "learning_rate: {peak: 1, schedule: cosin}",
        "training > learning_rate > schedule: expected one of: constant, linear, cosine, "
        'quadratic; got "cosin"; did you mean cosine?',
    ),
    (
        "training",
        "learning_rate: {peak: 1, end_factor: 0.1}",
        "training > learning_rate > end_factor: has no effect with `schedule: constant`; "
        "remove it, or set another schedule",
    ),
    ("update", "alpha: 1.5", f"update > alpha: {ALPHA_WANTED}, got 1.5"),
    ("update", "alpha: 1", f"update > alpha: {ALPHA_WANTED}, got 1"),
    ("update", "alpha: varr", f'update > alpha: {ALPHA_WANTED}, got "varr"'),
    ("update", "alpha: {from: 0.3}", "update > alpha > to: is missing; add it"),
    ("update", "alpha: {from: 2, to: 1}", "update > alpha > from: expected a number between 0 and 1, got 2"),
    ("update", "rule: vcasgd", f'update > rule: {RULE_WANTED}; got "vcasgd"; did you mean vc_asgd?{ELSE}'),
    ("update", "rule: 5", f"update > rule: {RULE_WANTED}; got 5{ELSE}"),
    ("update", "rule:", f"update > rule: {RULE_WANTED}; got nothing{ELSE}"),
    ("update", "horizon: 0.1", "update > horizon: unknown key; known here: alpha, rule"),
    ("pacing", "queue_ahead: -1", "pacing > queue_ahead: expected a whole number ≥ 0 or auto, got -1"),
    ("pacing", "kind: epochs", 'pacing > kind: expected one of: rolling, epoch; got "epochs"; did you mean epoch?'),
    ("stop", "target_accuracy: 0", "stop > target_accuracy: expected a number between 0 and 1 (0 excluded), got 0"),
    ("stop", "target_accuracy: 90", "stop > target_accuracy: expected a number between 0 and 1 (0 excluded), got 90"),
    ("stop", "monitor: 7", "stop > monitor: expected val_loss, or the name of a metric, got 7"),
    (
        "stop", "monitor: acuracy",
        "stop > monitor: acuracy is not measured, add it to training > metrics; did you mean accuracy?",
    ),
    ("stop", "mode: up", 'stop > mode: expected one of: min, max; got "up"'),
    ("stop", "target: .inf", 'stop > target: expected a number, got ".inf"'),
    ("stop", "target: 95", "stop > target: 95 is never reached: accuracy is at most 1"),
    ("stop", "wall_time_s: 1h", 'stop > wall_time_s: expected a number > 0, got "1h"'),
    ("validate", "every: 0", "validate > every: expected a whole number ≥ 1 or epoch or update, got 0"),
    ("validate", "samples: some", 'validate > samples: expected a whole number ≥ 1 or all, got "some"'),
    ("grid", "workers: 0", "grid > workers: expected a whole number from 1 to 1000 or auto, got 0"),
    ("grid", "tries: 99999999999999999999", "grid > tries: expected a whole number ≥ 1, got 1e+20"),
    ("grid", "wrokers: 2", "grid > wrokers: unknown key; did you mean workers?"),
    ("grid", "zebra: 2", "grid > zebra: unknown key; known here: servers, threads, timeout_s, tries, workers"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "line", "message"), WRONG_VALUES, ids=[line for _, line, _ in WRONG_VALUES])
def test_a_wrong_value_is_named_with_file_line_and_key(tmp_path: Path, section: str, line: str, message: str) -> None:
    text = in_section(section, line)
    number = text.splitlines().index(f"  {line}") + 1
    assert refusal(tmp_path, text) == f"job.yaml:{number}: {message}"


WRONG_JOBS = [
    ("model: {builtin: vgg}", 'model > builtin: expected one of: mlp, small_cnn, resnet_v2; got "vgg"'),
    (
        "model: {builtin: resnet}",
        'model > builtin: expected one of: mlp, small_cnn, resnet_v2; got "resnet"; did you mean resnet_v2?',
    ),
    ("model: {builtin: {name: mlp, unit: [3]}}", "model > builtin > unit: unknown key; did you mean units?"),
    (
        "model: {builtin: {name: mlp, units: [3, x]}}",
        'model > builtin > units > 2: expected a whole number ≥ 1, got "x"',
    ),
    (
        "model: {builtin: {name: mlp, dropout: 1}}",
        "model > builtin > dropout: expected a number between 0 and 1 (1 excluded), got 1",
    ),
    ("model: {builtin: {name: small_cnn, depth: 3}}", "model > builtin > depth: unknown key; nothing is known here"),
    (
        "model: {builtin: {name: resnet_v2, depth: 160}}",
        "model > builtin > depth: expected 9·n + 2 (11, 20, 29, …), got 160; the nearest is 164",
    ),
    ("model: {}", "model: expected exactly one of builtin, keras_json, keras, hub, python; got none"),
    (
        "model: {builtin: mlp, python: 'm:f'}",
        "model: expected exactly one of builtin, keras_json, keras, hub, python; got builtin and python",
    ),
    ("model: {keras: job.yaml}", "model > keras: expected a .keras file, as model.save() writes it, got job.yaml"),
    (
        "model: {builtin: mlp, weights: job.yaml}",
        "model > weights: expected a file that ends in .keras, .weights.h5, .npz, got job.yaml",
    ),
    ("model: small_cnn", 'model: expected keys indented below it, got "small_cnn"'),
    ("update:", "update: expected keys indented below it, got nothing"),
    ("update: [1]", "update: expected keys indented below it, got a list of 1"),
    ("update: fedbuf", f'update: {RULE_WANTED}; got "fedbuf"; did you mean fedbuff?{ELSE}'),
    (
        "update: {rule: fedbuff, buffer: 2, alpha: 0.5}",
        "update > alpha: unknown key; known here: buffer, rule, server_learning_rate, staleness",
    ),
    (
        "update: {rule: fedbuff, staleness: {name: hinge, thresh: 1}}",
        "update > staleness > thresh: unknown key; did you mean threshold?",
    ),
    (
        "update: {rule: fedbuff, staleness: late}",
        'update > staleness: expected one of: constant, polynomial, hinge; got "late"',
    ),
    ("update: {staleness_damping: -1}", "update > staleness_damping: expected a number ≥ 0, got -1"),
    ("update: {rule: fedbuff, buffer: 0}", "update > buffer: expected a whole number ≥ 1, got 0"),
    ("update: {rule: trimmed_mean, buffer: 0}", "update > buffer: expected a whole number ≥ 1, got 0"),
    ("update: {rule: trimmed_mean, trim: 5}", "update > trim: expected less than half of the buffer of 10, got 5"),
    ("update: {rule: trimmed_mean, buffer: 4}", "update > trim: expected less than half of the buffer of 4, got 2"),
    ("preset: papier", 'preset: expected one of: paper; got "papier"; did you mean paper?'),
    ("model:", "model: expected keys indented below it, got nothing"),
    ("nmae: b", "nmae: unknown key; did you mean name?"),
    ("name: Upper", 'name: expected 1 to 63 of a-z, 0-9, - and _, not beginning with - or _, got "Upper"'),
    ("name: 5", "name: expected 1 to 63 of a-z, 0-9, - and _, not beginning with - or _, got 5"),
    ("seed: -1", "seed: expected a whole number from 0 to 4294967295, got -1"),
    ("stop:", "stop: expected keys indented below it, got nothing"),
    ("? [a]\n: b", "a key must be a plain word"),
    (
        '"a\\nb": 1',
        '"a\\nb": unknown key; known here: boinc, data, grid, model, name, pacing, preset, retention, seed, stop, '
        "store, training, transport, trust, update, validate",
    ),
    ("seed: !!int x", "seed: the tag tag:yaml.org,2002:int is not used here; remove it"),
    (
        "seed: !!python/object/apply:os.system [id]",
        "seed: the tag tag:yaml.org,2002:python/object/apply:os.system is not used here; remove it",
    ),
]


@pytest.mark.parametrize(("line", "message"), WRONG_JOBS, ids=[line for line, _ in WRONG_JOBS])
def test_a_wrong_job_is_refused_at_its_line(tmp_path: Path, line: str, message: str) -> None:
    key = line.split(":")[0]
    kept = [each for each in MINIMAL.splitlines() if each.split(":")[0] != key]
    assert refusal(tmp_path, "\n".join([*kept, line])) == f"job.yaml:{len(kept) + 1}: {message}"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, "seed: 1\n").splitlines() == [
        "job.yaml:1: name: is missing; add it",
        "job.yaml:1: model: is missing; add it",
        "job.yaml:1: data: is missing; add it",
    ]


def test_a_regression_has_no_target_accuracy_and_no_classes(tmp_path: Path) -> None:
    (tmp_path / "d.npz").touch()
    text = """name: a
model: {builtin: mlp}
data:
  npz: d.npz
  task: regression
  split: dirichlet
stop:
  target_accuracy: 0.9
"""
    assert refusal(tmp_path, text) == (
        "job.yaml:6: data > split: dirichlet cuts by the class of a sample, which regression lacks; use iid"
    )
    assert refusal(tmp_path, text.replace("dirichlet", "iid")) == (
        "job.yaml:8: stop > target_accuracy: regression has no accuracy; remove it, or use target, epochs or patience"
    )
    assert "digits has a label for each sample" in refusal(tmp_path, text.replace("npz: d.npz", "dataset: digits"))


def test_a_key_given_twice_names_both_lines(tmp_path: Path) -> None:
    assert refusal(tmp_path, MINIMAL + "seed: 1\nseed: 2\n") == "job.yaml:5: seed: given on line 4 already; keep one"


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        "name: A\nname: b\nseed: x\nmodel: {builtin: {name: mlp, units: [0], drop: 1}}\ndata:\n  shards: 0\n  sed: 1\n"
    )
    assert [line.split(": ")[:2] for line in refusal(tmp_path, text).splitlines()] == [
        ["job.yaml:2", "name"],
        ["job.yaml:3", "seed"],
        ["job.yaml:4", "model > builtin > units > 1"],
        ["job.yaml:4", "model > builtin > drop"],
        ["job.yaml:6", "data > shards"],
        ["job.yaml:7", "data > sed"],
    ]


NOT_A_JOB = [
    (b"", "job.yaml: the file is empty; docs/job-file.md has an example"),
    (b"# only a comment\n", "job.yaml: the file is empty; docs/job-file.md has an example"),
    (b"- a\n- b\n", "job.yaml:1: expected keys, each with its value after a colon, got a list of 2"),
    (b"name: a\nmodel: \xff\n", "job.yaml:2: not UTF-8 text; save the file as UTF-8"),
    (b"name: a\nseed: \x07\n", "job.yaml:2: control characters are not allowed; delete the one here"),
    (
        b"name: a\ndata:\n\tshards: 3\n",
        "job.yaml:3: this is not YAML: a tab where YAML wants spaces; indent with spaces",
    ),
    (b"name: a\nmodel: b: c\n", "job.yaml:2: this is not YAML: mapping values are not allowed here"),
    (b"name: a\n---\nname: b\n", "job.yaml:2: this is not YAML: a second document begins here; keep one in each file"),
    (b"a: &a [x]\nb: [*a, *a]\n", "job.yaml:2: this is not YAML: aliases are not used here: write it out"),
    (b"a: " + b"[" * 5000, "job.yaml: nested too deeply"),
    (b"#" * (2**20 + 1), "job.yaml: larger than 1 MiB, so this is not a job file; give another file"),
]


@pytest.mark.parametrize(("raw", "message"), NOT_A_JOB, ids=[message[9:40] for _, message in NOT_A_JOB])
def test_what_is_no_job_file_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    assert refusal(tmp_path, raw) == message


HALVES = [
    ("name: a", 'name: "\\ud800"', "name: half of an escaped character"),
    ("seed: 1", 'seed: "\\udfff\\ud800"', "seed: half of an escaped character"),
    ("seed: 1", '"se\\ud83d": 1', "of a key: half of an escaped character"),
    ("seed: 1", 'training: {metrics: ["\\ud800"]}', "training > metrics > 1: half of an escaped character"),
    ("seed: 1", 'training: {optimizer: {name: adam, "\\ud800": 1}}', "optimizer: of a key: half of an escaped"),
    ("seed: 1", 'boinc: {"\\ud800": 1}', "boinc: of a key: half of an escaped character"),
    ("seed: 1", 'seed: "\\U00110000"', "an escape names a character that does not exist"),
    ("seed: 1", 'seed: "\\UFFFFFFFF"', "an escape names a character that does not exist"),
]


@pytest.mark.parametrize(("old", "new", "message"), HALVES, ids=[new for _, new, _ in HALVES])
def test_characters_that_no_file_can_hold_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    said = refusal(tmp_path, f"seed: 1\n{MINIMAL}".replace(old, new, 1))
    assert message in said
    said.encode()


@pytest.mark.parametrize("name", ["a" * 5000, "a\\nb", "a\\0b", "a/" * 3000])
def test_names_that_no_file_has_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    said = refusal(tmp_path, MINIMAL.replace("dataset: digits", f'npz: "{name}.npz"'))
    assert said.startswith("job.yaml:3: data > npz: there is no file ")
    assert len(said.splitlines()) == 1
    assert len(said) < 500


@given(raw=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
@examples(200)
def test_no_file_whatever_ends_in_anything_but_a_job_error(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(JobError):
        load(tmp_path, raw)


# -- freezing a job

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=6,
)


@given(
    arguments=st.dictionaries(
        st.text(min_size=1).filter(lambda k: k not in ("name", "learning_rate")), PLAIN, max_size=4
    )
)
@examples(150)
def test_a_frozen_job_reads_back_equal_whatever_its_arguments_hold(tmp_path: Path, arguments: dict[str, Any]) -> None:
    job = Job(
        name="a",
        model=ModelSettings(builtin=Named("mlp")),
        data=DataSettings(dataset="digits"),
        training=TrainingSettings(optimizer=Named("adam", arguments)),
    )
    save_job(job, tmp_path / "frozen.yaml")
    assert load_job(tmp_path / "frozen.yaml") == job


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.name)
def test_a_frozen_example_reads_back_equal(tmp_path: Path, path: Path) -> None:
    job = load_job(path)
    save_job(job, tmp_path / "job.yaml")
    assert load_job(tmp_path / "job.yaml") == load_frozen_job(tmp_path / "job.yaml") == job


def test_a_frozen_job_names_its_files_absolutely_and_is_read_when_they_are_gone(tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    data.touch()
    text = """name: a
model: {python: "models:build"}
data: {npz: data.npz, task: regression, split: iid}
training: {optimizer: {name: adam, beta_1: 1e-3}}
stop: {patience: 3}
"""
    job = load(tmp_path, text)
    run = tmp_path / "run"
    run.mkdir()
    save_job(job, run / "job.yaml")
    assert [path.name for path in run.iterdir()] == ["job.yaml"]
    assert load_job(run / "job.yaml") == job
    data.unlink()
    assert load_frozen_job(run / "job.yaml") == job
    with pytest.raises(JobError, match="there is no file"):
        load_job(run / "job.yaml")


def test_a_job_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    job = load(tmp_path, MINIMAL)
    (tmp_path / "taken").mkdir()
    with pytest.raises(JobError, match="cannot be written"):
        save_job(job, tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "taken"]


# -- document, schema and examples agree


def schema() -> dict[str, type[Section]]:
    """Each section of the document that has a table, with its part of the schema."""
    sections: dict[str, type[Section]] = {"Top level": Job}
    for name, info in Job.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section) and info.annotation is not Rule:
            sections[info.alias or name] = info.annotation
    sections["data > outputs"] = OutputSettings
    sections["data > from"] = Reader
    sections |= {f"data > from: {name}": reader for name, reader in READERS.items()}
    sections["training > learning_rate"] = LearningRateSettings
    sections["update > alpha"] = Ramp
    sections["transport > int8"] = Int8Arguments
    sections["transport > up: top_k"] = TopKArguments
    sections["model > lora"] = LoraSettings
    sections |= {f"update: {name}": settings for name, settings in RULES.items()}
    sections |= {f"update > staleness: {name}": settings for name, settings in STALENESS.items()}
    return sections | {f"model > builtin: {name}": arguments for name, arguments in BUILTINS.items()}


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Key → (default, when to change it), as the section's table has them."""
    found = re.search(rf"^#+ {re.escape(section)}\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found, f"docs/job-file.md has no section {section!r}"
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", found.group(1), re.MULTILINE)
    cells = {key: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for key, rest in rows}
    assert all(len(row) == 3 for row in cells.values()), section
    return {key: (row[0], row[2]) for key, row in cells.items()}


def default_of(info: Any) -> str:
    """A key's default as the document writes it."""
    if info.is_required():
        return "required"
    if info.default is None:
        return "none"

    def plain(value: Any) -> Any:
        return (
            value.name
            if isinstance(value, Named | Polynomial | Constant)
            else [plain(v) for v in value]
            if isinstance(value, tuple)
            else value.model_dump(exclude_defaults=True)
            if isinstance(value, Section)
            else value
        )

    text = yaml.safe_dump(plain(info.default), default_flow_style=True, sort_keys=False, width=1000)
    return f"`{text.removesuffix('...' + chr(10)).strip()}`"


CHOOSERS = {"data > from:": "as", "update:": "rule", "update > staleness:": "name"}
"""Keys whose value is the name of the section: a row would only repeat it."""


@pytest.mark.parametrize("section", schema())
def test_the_document_has_every_key_with_its_default_and_no_other(section: str) -> None:
    fields = {info.alias or name: info for name, info in schema()[section].model_fields.items()}
    if "data > from:" in section:
        fields = {name: info for name, info in fields.items() if name not in Reader.model_fields}
    choosers = [key for begin, key in CHOOSERS.items() if section.startswith(begin)]
    fields = {name: info for name, info in fields.items() if name not in choosers}
    sections = {"update", *schema()} if section == "Top level" else set()
    expected = {key: default_of(info) for key, info in fields.items() if key not in sections}
    assert {key: default for key, (default, _) in documented(section).items()} == expected


def test_the_document_says_when_to_change_a_key() -> None:
    silent = {key for section in schema() for key, (_, when) in documented(section).items() if not when}
    assert silent <= {"npz", "name"}  # the user's own file, and the name that the model gives to its output


def test_the_documents_jobs_load(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    names = [load(tmp_path, block).name for block in blocks]
    assert len(set(names)) == len(names)


def test_the_documents_error_messages_are_real(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```text\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    text = "name: a\nmodel: {builtin: mlp}\n" + "#\n" * 9 + "data:\n  dataset: digits\n  shards: fifty\n"
    assert refusal(tmp_path, text + "#\n" * 6 + "valdate: {}\n") == block.strip()


def test_the_issues_examples_are_there_and_named_like_their_files() -> None:
    names = {path.stem: load_job(path).name for path in JOB_FILES}
    assert {"fashion_mnist", "fashion_mnist_paper", "cifar10_resnet", "digits"} <= names.keys()
    assert all(stem == name for stem, name in names.items())


@pytest.mark.process
def test_reading_a_job_needs_no_heavy_import() -> None:
    code = "import sys, vcdl.job; print([m for m in ('h5py', 'keras', 'tensorflow') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_the_problems_of_given_values_beyond_the_most_shown_are_counted() -> None:
    with pytest.raises(JobError) as raised:
        job_of({f"key{number}": 1 for number in range(30)}, "the call")
    lines = str(raised.value).splitlines()
    assert len(lines) == MAX_SHOWN + 1
    assert re.fullmatch(r"the call: and \d+ more", lines[-1])
