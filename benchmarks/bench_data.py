"""Sources larger than memory: MB/s and memory of reading alone, of the survey and of the cut, and what kills cost.

    python -m benchmarks.bench_data npy parquet --gb 20 --folder /data --kills 2
    python -m benchmarks.bench_data images --gb 1 --folder /data

The data are made, and kept for the next call. Each measurement is a process of its own; memory is the peak of its own
(RssAnon, looked at every 20 ms) above what it had after its imports. MB/s count the bytes of decoded samples: rows of
1024 float32 numbers, sorted by class; of images and `jpeg` JPEG files of 256 × 256 pixels, which `jpeg` lets travel as
they are. A disk may be slower than the cut: `written alone` is one file of as many bytes, and a synchronisation.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 1024
SIDE = 256
CLASSES = 10
_BLOCK_ROWS = 4096
_GROUP_ROWS = 8192
SHARDS = 100
KINDS = ("npy", "parquet", "images", "jpeg")


def make(kind: str, folder: Path, size_bytes: int) -> None:
    """Make a source, unless it is there."""
    if (folder / "made").exists() and (folder / "made").read_text() == str(size_bytes):
        return
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    {"npy": make_npy, "parquet": make_parquet, "images": make_images, "jpeg": make_images}[kind](
        folder / "source", size_bytes
    )
    (folder / "made").write_text(str(size_bytes))


def rows_of(size_bytes: int) -> Iterator[tuple[Any, Any]]:
    """Blocks of x and y, sorted by class."""
    count, rng = size_bytes // (4 * COLUMNS), np.random.default_rng(0)
    for first in range(0, count, _BLOCK_ROWS):
        y = np.arange(first, min(first + _BLOCK_ROWS, count)) * CLASSES // count
        yield rng.random((len(y), COLUMNS), np.float32) + y[:, None].astype(np.float32), y


def make_npy(folder: Path, size_bytes: int) -> None:
    count = size_bytes // (4 * COLUMNS)
    with (folder / "x_train.npy").open("wb") as x_file, (folder / "y_train.npy").open("wb") as y_file:
        for file, shape, dtype in ((x_file, (count, COLUMNS), "<f4"), (y_file, (count,), "<i8")):
            np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        for x, y in rows_of(size_bytes):
            x.tofile(x_file)
            y.tofile(y_file)


def make_parquet(folder: Path, size_bytes: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    writer = None
    for x, y in rows_of(size_bytes):
        table = pa.table({**{f"c{column}": x[:, column] for column in range(COLUMNS)}, "y": y})
        writer = writer or pa.parquet.ParquetWriter(
            folder / "t.parquet", table.schema, compression="none", use_dictionary=False
        )
        writer.write_table(table, row_group_size=_GROUP_ROWS)
    if writer is not None:
        writer.close()


def make_images(folder: Path, size_bytes: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(size_bytes // (3 * SIDE * SIDE)):
        kind = folder / f"class{number % CLASSES}"
        kind.mkdir(exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8))
        small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(kind / f"{number}.jpg", quality=90)


def read_alone(kind: str, folder: Path) -> int:
    """Read all samples by the library alone; returns their bytes."""
    if kind == "npy":
        with (folder / "x_train.npy").open("rb", buffering=0) as file:
            return sum(len(block) for block in iter(lambda: file.read(2**24), b""))
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(folder / "t.parquet") as file:
            return sum(batch.nbytes for batch in file.iter_batches(_BLOCK_ROWS))
    from PIL import Image

    def decoded(path: Path) -> int:
        with Image.open(path) as picture:
            return len(picture.convert("RGB").tobytes())

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return sum(pool.map(decoded, sorted(folder.rglob("*.jpg"))))


def measured(kind: str, folder: Path) -> None:
    """Read, survey and cut in this process, and print what it took."""
    import pyarrow.parquet
    from PIL import Image

    from vcdl.data import ensure_files, load_dataset
    from vcdl.data.rows import Rows
    from vcdl.job.data import DataSettings
    from vcdl.run.folder import RunFolder

    del pyarrow, Image
    source = folder / "source"
    path = source / "t.parquet" if kind == "parquet" else source
    of_kind: dict[str, dict[str, Any]] = {"parquet": {"label": "y"}, "jpeg": {"jpeg": 90}}
    keys = {"path": str(path), **of_kind.get(kind, {})}
    settings = DataSettings.model_validate({"from": keys, "shards": SHARDS}, context=folder)
    begin_kib, peaks_kib = own_kib(), [0]
    threading.Thread(target=watch_memory, args=[peaks_kib], daemon=True).start()
    begin_s = time.perf_counter()
    data = load_dataset(settings, 1)
    surveyed_s = time.perf_counter() - begin_s
    samples = data.x_train.source_count if isinstance(data.x_train, Rows) else len(data.x_train)
    size_bytes = samples * data.sample_bytes
    begin_s = time.perf_counter()
    ensure_files(RunFolder(folder / "run"), data, settings, 1)
    cut_s = time.perf_counter() - begin_s
    print(f"{kind}: survey {mb(size_bytes, surveyed_s)}, cut {mb(size_bytes, cut_s)}", end=", ")
    print(f"{(max(peaks_kib) - begin_kib) / 1024:.0f} MiB of its own above the imports", flush=True)


def own_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def watch_memory(peaks_kib: list[int]) -> None:
    while True:
        peaks_kib[0] = max(peaks_kib[0], own_kib())
        time.sleep(0.02)


def write_alone(folder: Path, size_bytes: int) -> None:
    """Write as much as a cut does into one file, and print how fast."""
    block, file = os.urandom(2**24), folder / "alone"
    begin_s = time.perf_counter()
    with file.open("wb") as opened:
        for _ in range(size_bytes // len(block)):
            opened.write(block)
        os.fsync(opened.fileno())
    print(f"{folder.name}: written alone {mb(size_bytes, time.perf_counter() - begin_s)}", flush=True)
    file.unlink()


def mb(size_bytes: float, seconds: float) -> str:
    return f"{size_bytes / 1e6 / seconds:.0f} MB/s ({seconds:.0f} s)"


def child(kind: str, folder: Path, deed: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "benchmarks.bench_data", kind, "--folder", str(folder), "--deed", deed]
    return subprocess.Popen(command, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")})


def remove_made(folder: Path) -> None:
    """Remove the run and the kept survey."""
    for name in ("run", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)


def bench(kind: str, folder: Path, size_bytes: int, kills: int) -> None:
    """All measurements of one kind."""
    folder = folder / kind
    begin_s = time.perf_counter()
    make(kind, folder, size_bytes)
    print(f"{kind}: {size_bytes / 1e9:.1f} GB made in {time.perf_counter() - begin_s:.0f} s", flush=True)
    child(kind, folder, "read").wait()
    if kind != "jpeg":
        write_alone(folder, size_bytes)
    begin_s = time.perf_counter()
    remove_made(folder)
    child(kind, folder, "measure").wait()
    whole_s = time.perf_counter() - begin_s
    if kills:
        remove_made(folder)
        begin_s = time.perf_counter()
        for kill in range(kills):
            running = child(kind, folder, "measure")
            time.sleep(whole_s * (0.6 + 0.1 * kill))
            running.send_signal(signal.SIGKILL)
            running.wait()
        child(kind, folder, "measure").wait()
        print(
            f"{kind}: {kills} kills, {time.perf_counter() - begin_s:.0f} s in all, {whole_s:.0f} s without", flush=True
        )
    remove_made(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="+", choices=KINDS)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--deed", choices=("all", "read", "measure"), default="all", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for kind in options.kinds:
        if options.deed == "measure":
            measured(kind, options.folder)
        elif options.deed == "read":
            begin_s = time.perf_counter()
            size_bytes = read_alone(kind, options.folder / "source")
            print(f"{kind}: read alone {mb(size_bytes, time.perf_counter() - begin_s)}", flush=True)
        else:
            bench(kind, options.folder, int(options.gb * 1e9), options.kills)


if __name__ == "__main__":
    main()
