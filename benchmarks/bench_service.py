"""The service's own cost: start and memory, answers over a journal of a million subtasks, and what 200 watchers and
50 requests a second take from a training run beside them. `python -m benchmarks.bench_service`; it takes ten minutes.
"""

import argparse
import asyncio
import itertools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2

from benchmarks.service_runs import write_run
from tests.web.served import chromium
from vcdl.run.kind import BOINC

_ASKED = 400
_SETTLES_S = 60.0
"""After the first answer the profile of a long journal is added up beside."""
_PER_S = 50
_ASKED_BESIDE = ("/api/v1/jobs/run", "/api/v1/jobs", "/api/v1/jobs/run/events?after=0", "/jobs/run")
_JOB = {
    "--set": [
        "data.shards=20",
        "stop.epochs=200",
        "stop.target_accuracy=null",
        "model.builtin={name: mlp, units: [64]}",
    ]
}


class Serving:
    """`vcdl serve` as a process."""

    def __init__(self, runs: Path) -> None:
        begin_s = time.perf_counter()
        command = [sys.executable, "-m", "vcdl", "serve", str(runs), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout or iter(())
        found = (re.search(r"(http://127\.0\.0\.1:\d+)/login\?code=(\S+)", line) for line in said)
        self.url, code = next(one for one in found if one is not None).groups()
        with httpx2.Client() as client:
            client.get(f"{self.url}/healthz")
            self.start_s = time.perf_counter() - begin_s
            self.cookies = dict(client.get(f"{self.url}/login", params={"code": code}).cookies)

    @property
    def memory_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024

    @property
    def processor_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def answers(serving: Serving, paths: list[str]) -> None:
    """Print how long some answers take, one after the other."""
    with httpx2.Client(cookies=serving.cookies, timeout=120) as client:
        for path in paths:
            begin_s = time.perf_counter()
            first = client.get(serving.url + path)
            first_s = time.perf_counter() - begin_s
            time.sleep(_SETTLES_S if "large" in path and first_s > 1 else 0)
            times_s = []
            for _ in range(_ASKED):
                begin_s = time.perf_counter()
                client.get(serving.url + path).raise_for_status()
                times_s.append(time.perf_counter() - begin_s)
                time.sleep(0.02)
            p95 = sorted(times_s)[int(_ASKED * 0.95)]
            size_kb = len(first.content) / 1000
            print(
                f"{path:<40} first {first_s:6.2f} s  median {1000 * statistics.median(times_s):6.1f} ms  "
                f"p95 {1000 * p95:6.1f} ms  {size_kb:6.1f} kB"
            )


def painted(serving: Serving, path: str) -> None:
    """Print how soon a real browser shows a page, without its script, and after it."""
    with chromium() as browser:
        for scripted in (False, True):
            context = browser.new_context(java_script_enabled=scripted)
            context.add_cookies(
                [{"name": name, "value": value, "url": serving.url} for name, value in serving.cookies.items()]
            )
            page = context.new_page()
            page.goto(serving.url + path)  # the browser itself has started
            begin_s = time.perf_counter()
            page.goto(serving.url + path)
            page.locator("main").wait_for()
            words = f"{1000 * (time.perf_counter() - begin_s):.0f} ms until its content is there"
            if scripted:
                paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
                page.wait_for_function(paint)
                words += f", first paint after {page.evaluate(paint):.0f} ms"
            print(f"{path} in Chromium, {'with' if scripted else 'without'} script: {words}")
            context.close()


class Burden:
    """Watchers of a page, and requests at a steady rate whether or not the ones before are answered. By hand: a client
    of a library would take as much of the machine as the service.
    """

    def __init__(self, serving: Serving, watchers: int) -> None:
        self._host = serving.url.removeprefix("http://")
        self._cookie = "; ".join(f"{name}={value}" for name, value in serving.cookies.items())
        self._watchers = watchers
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.times_s: list[float] = []
        self.messages = 0
        self.refused = 0

    async def last(self, is_over: Callable[[], bool]) -> None:
        """Burden the service until something is over."""
        tasks = [asyncio.create_task(self._watch("/jobs/run")) for _ in range(self._watchers)]
        tasks.append(asyncio.create_task(self._ask()))
        while not is_over():
            await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self) -> None:
        begin_s, asked = time.perf_counter(), set()
        for number in itertools.count():
            await asyncio.sleep(begin_s + number / _PER_S - time.perf_counter())
            task = asyncio.create_task(self._one(_ASKED_BESIDE[number % len(_ASKED_BESIDE)]))
            asked.add(task)
            task.add_done_callback(asked.discard)

    async def _one(self, path: str) -> None:
        begin_s = time.perf_counter()
        reader, writer = self._free.pop() if self._free else await self._connected()
        if reader.at_eof():  # the service ends those that are idle
            reader, writer = await self._connected()
        head = await self._head(reader, writer, path)
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r")[0]))
        self._free.append((reader, writer))
        self.refused += b" 200 " not in head[:20]
        self.times_s.append(time.perf_counter() - begin_s)

    async def _watch(self, path: str) -> None:
        reader, writer = await self._connected()
        await self._head(reader, writer, path, "Accept: text/event-stream\r\n")
        while piece := await reader.read(1 << 18):
            self.messages += piece.count(b"event: parts")

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._host.split(":"))

    async def _head(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, more: str = ""
    ) -> bytes:
        words = f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nCookie: {self._cookie}\r\n{more}\r\n"
        writer.write(words.encode())
        return (await reader.readuntil(b"\r\n\r\n")).lower()


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


def train(runs: Path, name: str) -> tuple[subprocess.Popen[bytes], float]:
    """Begin a run, and when it was."""
    overrides = [word for value in _JOB["--set"] for word in ("--set", value)]
    out = str(runs / name)
    command = [sys.executable, "-m", "vcdl", "run", "examples/digits.yaml", "--out", out, *overrides]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL), time.perf_counter()


def beside(folder: Path, watchers: int, turns: int) -> None:
    """Print what watchers and requests take from a run, by turns with and without them."""
    times_s: dict[int, list[float]] = {0: [], watchers: []}
    for turn in range(turns):
        for number in times_s if turn % 2 else reversed(times_s):
            runs = folder / f"beside{turn}-{number}"
            runs.mkdir()
            serving = Serving(runs)
            process, begin_s = train(runs, "run")
            while not (runs / "run" / "journal.db").exists():
                time.sleep(0.2)
            before_s, watched_s = serving.processor_s, time.perf_counter()
            burden = Burden(serving, number)
            if number:
                asyncio.run(burden.last(partial(_has_ended, process)))
            process.wait()
            times_s[number].append(time.perf_counter() - begin_s)
            spent_s, watched_s = serving.processor_s - before_s, time.perf_counter() - watched_s
            words = f"{number:4d} watchers: {times_s[number][-1]:6.1f} s, {burden.messages} messages"
            if number:
                p95_s = sorted(burden.times_s)[int(len(burden.times_s) * 0.95)]
                words += f", {len(burden.times_s) / watched_s:.1f} requests/s, p95 {1000 * p95_s:.0f} ms"
                words += f", {burden.refused} refused"
            share = spent_s / watched_s / (os.cpu_count() or 1)
            load = " ".join(f"{value:.1f}" for value in os.getloadavg()[:2])
            print(f"{words}, the service took {spent_s:.1f} s, {share:.1%} of all cores; load {load}", flush=True)
            serving.end()
    plain, watched = (statistics.median(values) for values in times_s.values())
    print(
        f"a run with {watchers} watchers and {_PER_S} requests/s takes {watched / plain - 1:+.1%} of the time without"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subtasks", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3, help="0: nothing is trained beside")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vcdl-bench-service-"))
    try:
        runs = folder / "runs"
        runs.mkdir()
        empty = [Serving(runs) for _ in range(3)]
        print(f"start {statistics.median(one.start_s for one in empty):.2f} s, {empty[0].memory_mb:.0f} MB")
        for one in empty:
            one.end()
        write_run(runs / "large", arguments.subtasks // 1000, 1000, 200, BOINC, until=0.999)
        small = write_run(runs / "small", 3, 4, 2)
        for number in range(arguments.jobs):
            shutil.copytree(small.path, runs / f"j{number:05d}")
        serving = Serving(runs)
        answers(serving, ["/api/v1/jobs/large", "/jobs/large", "/api/v1/jobs", "/", "/metrics"])
        print(f"then {serving.memory_mb:.0f} MB")
        painted(serving, "/")
        serving.end()
        if arguments.turns:
            beside(folder, arguments.watchers, arguments.turns)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
