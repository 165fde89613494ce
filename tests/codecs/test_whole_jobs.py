"""A small job with each codec and real training: it learns, its journal and uploads give the same weights
again, and few bytes travel.
"""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments.training_here import TrainingHere
from tests.end_to_end.vcdl_process import applied
from tests.uploads import read_upload
from vcdl.client.trainer import TrainerCache
from vcdl.codecs.choose import up_encoding
from vcdl.job import Job, load_frozen_job, save_job
from vcdl.journal.events import StopReason
from vcdl.journal.observer import RunObserver
from vcdl.models.build import initial_weights
from vcdl.rules.base import Update
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.run.reading import read_report
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.virtual_run import VirtualRun
from vcdl.wire.weights import Vector, read_weights, write_weights
from vcdl.wire.workunit import WorkunitName

pytestmark = [pytest.mark.process, pytest.mark.keras]

SHARDS = 5
FLEET = ClientFleet(clients=3, slots=1, speed_ratio=4.0, subtask_s=10.0)
PLAIN_BYTES = 4 * 2410
TRANSPORTS = {
    "float32 deflated": ({"down": "float32", "up": "float32", "compress": True}, 0.99),
    "float16": ({"down": "float16", "up": "float16"}, 0.6),
    "bfloat16 deflated": ({"down": "bfloat16", "up": "bfloat16", "compress": True}, 0.5),
    "int8": ({"down": "int8", "up": "int8"}, 0.4),
    "int8 of few levels": ({"down": "bfloat16", "up": {"name": "int8", "levels": 15}, "compress": True}, 0.35),
    "top_k": ({"down": "float16", "up": {"name": "top_k", "share": 0.2}, "compress": True}, 0.3),
}
ORDINARY = ("int8 of few levels", "top_k")
"""Codecs that differ on the way down and up, and are deflated. The others are nightly."""

SHARE_WITH_MOMENTS = 0.6
"""Largest share of the bytes of the weights alone: a quarter of twice as many, and the header."""


def job(transport: Any, rule: Any, epochs: int = 1, pacing: str = "rolling", moments: str = "none") -> Job:
    return Job.model_validate(
        {
            "name": "small",
            "model": {"builtin": {"name": "mlp", "units": [32]}},
            "data": {"dataset": "digits", "shards": SHARDS, "validation": 0.2},
            "training": {"learning_rate": 0.01, "local_epochs": 3, "share_optimizer_state": moments},
            "update": rule,
            "transport": transport,
            "pacing": pacing,
            "stop": {"epochs": epochs},
            "validate": {"every": "epoch", "samples": 100},
            "grid": {"workers": 2},
        }
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ORDINARY else pytest.mark.nightly) for name in TRANSPORTS]
)
def test_a_job_can_be_folded_again_from_its_uploads(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transport, share = TRANSPORTS[name]
    rule = (
        {"rule": "trimmed_mean", "buffer": 1, "trim": 0}
        if name.startswith("int8")
        else {"rule": "vc_asgd", "alpha": 0.5}
    )  # the one needs the base as well, the other does not
    folder = RunFolder(tmp_path)
    folder.create()
    folder.kept_uploads.mkdir()
    monkeypatch.setattr("vcdl.loop.work_generator.discard_kept_uploads", lambda *_: None)
    save_job(job(transport, rule), folder.job_file)
    assert VirtualRun(folder, FLEET, TrainingHere(folder, TrainerCache()), RunObserver()).run() == StopReason.EPOCHS

    weights = refolded(folder)
    last, _ = read_weights(folder.snapshot(SHARDS), weights.size)
    assert last.tobytes() == weights.tobytes()
    assert all(row.bytes_up < share * PLAIN_BYTES + 500 for row in applied(tmp_path))


def test_moments_travel_with_codecs_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.create()
    folder.kept_uploads.mkdir()
    monkeypatch.setattr("vcdl.loop.work_generator.discard_kept_uploads", lambda *_: None)
    transport = {"down": "int8", "up": {"name": "int8", "levels": 31}, "compress": True}
    save_job(job(transport, "forecast", epochs=3, moments="second_moment"), folder.job_file)
    assert VirtualRun(folder, FLEET, TrainingHere(folder, TrainerCache()), RunObserver()).run() == StopReason.EPOCHS

    report = read_report(folder)
    assert (report.totals.refused, report.totals.failed) == (0, 0)
    assert report.final_test is not None
    assert report.final_test.accuracy is not None
    assert report.final_test.accuracy > 0.8
    assert all(row.bytes_up < SHARE_WITH_MOMENTS * PLAIN_BYTES + 500 for row in applied(tmp_path))


def refolded(folder: RunFolder) -> Vector:
    """Version 0 with all uploads, as the checks read them, folded in by the journal's order."""
    settings, prepared = load_frozen_job(folder.job_file), Prepared.read(folder)
    up = up_encoding(settings.transport.to_wire(), prepared.layout)
    weights = [initial_weights(folder.model_file.read_text(), 1)]
    for row in sorted(applied(folder.path), key=lambda row: row.version):
        path, base = folder.kept_upload(row.version, row.workunit), folder.path / "base.h5"
        write_weights(base, weights[row.base_version], "{}")
        client = read_upload(path, up, base)
        facts = (WorkunitName.parse(row.workunit).epoch, row.staleness, row.samples, row.fraction, row.version)
        weights.append(weights[-1].copy())
        settings.update.apply(weights[-1], Update(client, *facts, weights[row.base_version]))
    return weights[-1]
