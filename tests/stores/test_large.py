"""A model of 300 million weights, 1.2 GB, on servers with default settings."""

import multiprocessing
import resource
import time
from typing import Any

import numpy as np
import pytest

from tests.store_servers import OpenStore
from vcdl.rules import Update, VcAsgd
from vcdl.stores import Fold
from vcdl.weights import Vector

SIZE = 300_000_000


def _serve(open_store: OpenStore, results: Any) -> None:
    """What a parameter server does: make the weights, fold two uploads, read; says values, seconds and its peak of memory."""
    store = open_store(size=SIZE)
    upload: Vector = np.full(SIZE, 2.0, np.float32)
    store.create(np.ones(SIZE, np.float32))
    rule = VcAsgd(0.5)

    def apply(server: Vector, staleness: int) -> float:
        return rule.apply(server, Update(upload, 1, staleness, 1, 1.0))

    begin = time.perf_counter()
    store.fold([Fold("a", "a", 0, apply), Fold("b", "b", 0, apply)])
    fold_s = time.perf_counter() - begin
    store.close()
    reader = open_store(size=SIZE)  # with nothing kept from before
    version, vector = reader.read()
    same = bool((vector == np.float32(1.75)).all())
    results.put((version, same, fold_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_vector_of_1200_mb_needs_no_settings_and_no_more_than_four_times_its_memory(open_store: OpenStore) -> None:
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    process = spawn.Process(target=_serve, args=(open_store, results))
    process.start()
    version, same, fold_s, peak_bytes = results.get(timeout=1100)
    process.join()
    print(f"{fold_s:.1f} s a fold of two, {peak_bytes / (4 * SIZE):.2f} vectors of memory at the peak")
    assert (version, same) == (2, True)
    assert peak_bytes <= 4 * 4 * SIZE
