"""Models of 25 and 300 million weights, 100 MB and 1.2 GB, on servers with default settings: what a parameter server
holds in memory."""

import multiprocessing
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from tests.served_run import ALPHA, ServedRun
from tests.store_servers import on_server
from vcdl.local.upload_folder import UploadFolder
from vcdl.loop.parameter_server import ParameterServer
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run

pytestmark = pytest.mark.process

T = TypeVar("T")


def _prepare(path: Path, url: str, size: int, waiting: int) -> None:
    """A run and what its clients have brought."""
    run = ServedRun.new(path, np.ones(size, np.float32), url)
    run.store.close()
    upload = np.full(size, 2.0, np.float32)
    for number in range(waiting):
        run.bring(number, upload)


def _fold(path: Path) -> tuple[float, int]:
    """The work of a parameter server: take the job up, fold all that waits, keep a snapshot. Returns seconds and its
    peak of memory."""
    run = Run.open(RunFolder(path))
    server = ParameterServer.of(run, run.journal(), UploadFolder(run.folder))
    server.catch_up()
    begin = time.perf_counter()
    server.run_once()
    fold_s = time.perf_counter() - begin
    run.snapshots(server.store).keep_newest()
    return fold_s, _peak_bytes()


def _peak_bytes() -> int:
    """The peak of this program; getrusage would also count the process that it was forked from."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _in_a_process(work: Callable[..., T], *arguments: Any) -> T:
    """Its peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


@pytest.mark.sampled(3)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", ["file", on_server("redis"), on_server("mysql")])
@pytest.mark.parametrize(
    ("size", "waiting"),
    [(25_000_000, 8), pytest.param(300_000_000, 2, marks=pytest.mark.soak)],
    ids=["100 MB", "1.2 GB"],
)
def test_a_vector_of_any_size_needs_no_settings_and_no_more_than_four_times_its_memory(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, size: int, waiting: int
) -> None:
    url = "" if store == "file" else request.getfixturevalue(f"{store}_url")
    path = tmp_path / f"{store}-{size}"
    _in_a_process(_prepare, path, url, size, waiting)
    fold_s, peak_bytes = _in_a_process(_fold, path)
    print(f"{store}: {fold_s:.1f} s a fold of {waiting}, {peak_bytes / (4 * size):.2f} vectors of memory at the peak")
    expected = np.ones(1, np.float32)
    for _ in range(waiting):
        expected = expected * np.float32(ALPHA) + np.full(1, 2.0, np.float32) * np.float32(1 - ALPHA)
    assert _in_a_process(_read, path, float(expected[0])) == (waiting, True)
    assert peak_bytes <= 4 * 4 * size
    shutil.rmtree(path)


def _read(path: Path, expected: float) -> tuple[int, bool]:
    """With nothing kept from before."""
    store = Run.open(RunFolder(path)).store()
    version, vector = store.read()
    store.drop()
    return version, bool(np.allclose(vector, expected, rtol=1e-6))
