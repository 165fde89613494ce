"""BOINC's side of a slot, for tests: init_data.xml as a client writes it, the shared memory, heartbeats, and
the task's process.
"""

import mmap
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CONTROL, HEARTBEAT, STATUS = 0, 4, 5
CHANNEL_BYTES = 1024
TIMEOUT_S = 120
"""Importing TensorFlow on a busy machine."""
ACCOUNT_KEY = "0123456789abcdef0123456789abcdef"
_VALUE = re.compile(r"<(\w+)>([^<]*)</\1>")


def init_data(project: Path, **values: object) -> str:
    """init_data.xml of a task; `values` by their names in it."""
    told = {
        "project_dir": project, "authenticator": ACCOUNT_KEY, "wu_name": "tiny_e0003_s017_a0_v000142", "shm_key": -1,
        "slot": 0, "client_pid": os.getpid(), "wu_cpu_time": "0.000000", "checkpoint_period": "60.000000",
        "gpu_type": "", "gpu_device_num": -1, "ncpus": "1.000000", "rsc_memory_bound": "100000000.000000", **values,
    }  # fmt: skip
    lines = [f"<{name}>{value}</{name}>" for name, value in told.items()]
    host = "<host_info>\n    <p_model>AMD & Sons <R></p_model>\n    <ncpus>77</ncpus>\n</host_info>"
    preferences = "<project_preferences>\n<ncpus>99</ncpus>\n</project_preferences>"
    head, end = ("<app_init_data>", "<major_version>7</major_version>"), "</app_init_data>\n"
    return "\n".join([*head, preferences, *lines, host, end])


class ClientSide:
    """The client's end of the shared memory of a slot. Sends a heartbeat each second and keeps what the task tells."""

    def __init__(self, slot: Path) -> None:
        path = slot / "boinc_mmap_file"
        path.write_bytes(bytes(8 * CHANNEL_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8 * CHANNEL_BYTES)
        self.told: list[dict[str, float]] = []
        """Every status of the task, by the names in it."""
        self.raw: list[str] = []
        self.beats = True
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def say(self, message: str) -> None:
        """Send a control message; waits until the task has taken it."""
        self.put(CONTROL, message)
        wait_for(lambda: self._memory[CONTROL * CHANNEL_BYTES] == 0)

    def put(self, channel: int, message: str) -> None:
        begin = channel * CHANNEL_BYTES
        data = message.encode() + b"\0"
        self._memory[begin + 1 : begin + 1 + len(data)] = data
        self._memory[begin] = 1

    def take(self, channel: int) -> str | None:
        begin = channel * CHANNEL_BYTES
        if not self._memory[begin]:
            return None
        text = bytes(self._memory[begin + 1 : begin + CHANNEL_BYTES]).partition(b"\0")[0].decode()
        self._memory[begin] = 0
        return text

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.listen()

    def listen(self) -> None:
        """Take the task's status, if there is a new one."""
        text = self.take(STATUS)
        if text is not None:
            self.raw.append(text)
            self.told.append({name: float(value) for name, value in _VALUE.findall(text)})

    def _serve(self) -> None:
        beat_s = 0.0
        while not self._over.wait(0.05):
            if self.beats and time.monotonic() > beat_s:
                beat_s = time.monotonic() + 1.0
                self.put(HEARTBEAT, "<heartbeat/><wss>1.0e+08</wss><max_wss>2.0e+10</max_wss>")
            self.listen()


class Task:
    """A slot with a workunit in it, and the process that trains it."""

    def __init__(self, slot: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self.slot = slot
        self.client = ClientSide(slot)
        self._stderr = (slot / "stderr.txt").open("ab")
        self.process = subprocess.Popen(
            command, cwd=slot, env=dict(environment), stdout=subprocess.DEVNULL, stderr=self._stderr
        )

    @property
    def errors(self) -> str:
        return (self.slot / "stderr.txt").read_text(errors="replace")

    def wait_for(self, what: Callable[[], bool]) -> None:
        wait_for(what, lambda: self.process.poll() is None, lambda: self.errors[-2000:])

    def wait_until_it_trains(self) -> None:
        self.wait_for(lambda: "first batch trained" in self.errors)
        begun = self.fraction
        self.wait_for(lambda: self.fraction > begun)

    @property
    def fraction(self) -> float:
        return self.client.told[-1].get("fraction_done", 0.0) if self.client.told else 0.0

    def processor_s(self) -> float:
        """Processor time of the process so far."""
        return processor_s(self.process.pid)

    def ends(self, timeout_s: float = TIMEOUT_S) -> int:
        status = self.process.wait(timeout_s)
        self.close()
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.client.close()
        self._stderr.close()


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def task(slot: Path, command: list[str], environment: Mapping[str, str] | None = None) -> Iterator[Task]:
    """Start a task in a slot; kills it at the end."""
    started = Task(slot, command, os.environ if environment is None else environment)
    try:
        yield started
    finally:
        started.close()


def wait_for(
    what: Callable[[], bool], lives: Callable[[], bool] = lambda: True, explain: Callable[[], str] = lambda: ""
) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not what():
        assert lives() or what(), f"the process ended: {explain()}"
        assert time.monotonic() < until_s, f"it did not happen: {explain()}"
        time.sleep(0.01)
