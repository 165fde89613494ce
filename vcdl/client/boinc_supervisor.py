"""A task's side of the BOINC runtime protocol: a thread that exchanges messages with the client.

It starts before Keras is unpacked, since the client expects answers from the beginning. The training asks for requests
between two batches. Before the second batch it cannot react in time, so a suspension stops the main thread by a signal,
possibly in the middle of an import.
"""

import logging
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

from vcdl.client.channels import Channel, Channels
from vcdl.client.init_data import InitData
from vcdl.client.slot import EXIT_ABORTED, finish_now_wanted
from vcdl.client.supervisor import Request
from vcdl.client.time_share import TimeShare

_TICK_S = 0.1
"""Seconds between two reads of the client's messages: BOINC's client sends at most one per second, so none is missed.
"""
_STATUS_EVERY_S = 1.0
"""Seconds between two status messages, as BOINC's own API sends them."""
_THROTTLED_S = 3.0
"""Seconds of suspension before the training pauses. The client throttles a task by suspending it every other second,
and a checkpoint for each of these would cost too much."""
_SILENCE_S = 30.0
"""Seconds without a heartbeat after which the client counts as dead: as long as in BOINC's own library."""
_SILENCE_WITH_PID_S = 300.0
"""The same limit while a process with the client's id exists. The client may only be blocked; but it may also be a
zombie, so there is a limit."""
_END_WITHIN_S = 45.0
"""Seconds within which a quit must be over; after 60 s the client kills the task."""
_TAKEN_WITHIN_S = 2.0
"""Longest wait for the client to read the last status, so that a dead client does not block the task."""
_NETWORK_SUSPENDED = re.compile(r"<network_suspended(/>|>\s*1)")
_log = logging.getLogger(__name__)


class BoincSupervisor:
    """The BOINC client that started this process, as the supervisor of a training.

    Within `with`, a thread reads the client's messages, reports the status each second, and ends the process if it does
    not end in time after a quit.
    """

    def __init__(self, channels: Channels, init: InitData, slot: Path) -> None:
        self._channels = channels
        self._init = init
        self._slot = slot
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        """Event that is cleared while the training has to wait."""
        self._asked_to_quit = False
        self._end_by_s: float | None = None
        """Monotonic time by which a requested quit must be complete, or None if no quit was requested."""
        self._finish_now = False
        self._network_suspended = False
        self._is_training = False
        self._asked = 0
        """Number of times that the training asked for requests; from the second time on it has trained a batch."""
        self._former_handler: Any = None
        self._closed = threading.Event()
        self._heard_s = time.monotonic()
        self._suspended_since_s = 0.0
        self._suspended_s = 0.0
        """Seconds of suspension, which do not count as the task's time."""
        self._time = TimeShare(init.elapsed_s, lambda: time.monotonic() - self._suspended_s)
        self._checkpoint_cpu_s = init.cpu_s
        self._thread = threading.Thread(target=self._talk, name="boinc", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread that exchanges messages with the client.

        Until the training asks for requests for the first time, a quit ends the process immediately.
        """
        # Stop the main thread by a signal: an event would only be checked between two batches, and importing Keras
        # takes seconds.
        self._former_handler = signal.signal(signal.SIGUSR1, self._wait_while_starting)
        # Let the system restart interrupted system calls, so that those of an import do not fail with EINTR.
        signal.siginterrupt(signal.SIGUSR1, False)
        self._hear()  # the task may be suspended from the start
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        signal.signal(signal.SIGUSR1, self._former_handler)

    def wait_until_resumed(self) -> None:
        """Wait while the task is suspended, without using the processor."""
        self._may_go_on.wait()

    def quit(self) -> None:
        """Request a checkpoint and the end. Takes no lock, so a signal handler may call it."""
        self._asked_to_quit = True

    def may_use_network(self) -> bool:
        """Return whether the volunteer lets tasks use the network now, according to the client's last heartbeat."""
        return not self._network_suspended

    def request(self) -> Request:
        self._is_training = True
        self._asked += 1
        # Wait here instead of answering PAUSE immediately: a pause writes a checkpoint, and throttling suspends every
        # other second.
        may_go_on = self._may_go_on.wait(_THROTTLED_S)
        if self._asked_to_quit:
            return Request.QUIT
        if not may_go_on:
            return Request.PAUSE
        return Request.FINISH if self._finish_now else Request.GO

    def progress(self, fraction: float, _samples: int) -> None:
        self._time.record_progress(fraction)

    def checkpoint_made(self) -> None:
        self._checkpoint_cpu_s = self._cpu_s()

    def tell_done(self) -> None:
        """Stop the thread, and send the final status of the finished task.

        It waits at most 2 s until the client has read the previous message.
        """
        self._stop()
        self._time.share = 1.0
        until_s = time.monotonic() + _TAKEN_WITHIN_S
        while not self._tell_status() and time.monotonic() < until_s:
            time.sleep(_TICK_S)

    def _stop(self) -> None:
        self._closed.set()
        self._thread.join()

    def _talk(self) -> None:
        due_s = 0.0
        while not self._closed.wait(_TICK_S):
            self._hear()
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + _STATUS_EVERY_S
                self._look_around()
                self._tell_status()
            self._end_in_time()

    def _hear(self) -> None:
        heartbeat = self._channels.receive(Channel.HEARTBEAT)
        if heartbeat is not None:
            self._heard_s = time.monotonic()
            self._network_suspended = _NETWORK_SUSPENDED.search(heartbeat) is not None
        message = self._channels.receive(Channel.CONTROL)
        if message is None:
            return
        if "<abort/>" in message:
            self._leave(EXIT_ABORTED, "aborted by the BOINC client")
        # A quit overrides a suspension in the same message, because the client waits for the end.
        if "<quit/>" in message:
            self.quit()
        elif "<suspend/>" in message:
            if not self._asked_to_quit and self._may_go_on.is_set():
                self._suspended_since_s = time.monotonic()
                self._may_go_on.clear()
                self._stop_the_start()
        elif "<resume/>" in message and not self._may_go_on.is_set():
            self._suspended_s += time.monotonic() - self._suspended_since_s
            self._may_go_on.set()

    def _stop_the_start(self) -> None:
        if self._is_starting and threading.current_thread() is self._thread:
            signal.raise_signal(signal.SIGUSR1)  # its handler runs in the main thread

    def _wait_while_starting(self, _signal: int, _frame: FrameType | None) -> None:
        while self._is_starting and not self._may_go_on.is_set():  # not inside `wait`, which the signal may interrupt
            time.sleep(_TICK_S)

    @property
    def _is_starting(self) -> bool:
        """Whether the training has not asked for requests yet, or is still at its first batch, which takes long."""
        return self._asked < 2

    def _look_around(self) -> None:
        if not self._asked_to_quit and self._client_is_gone():
            _log.warning("the BOINC client is gone: the task ends and continues when it is back")
            self.quit()
        self._finish_now = self._finish_now or finish_now_wanted(self._slot, self._init.project)

    def _client_is_gone(self) -> bool:
        silence_s = time.monotonic() - self._heard_s
        if not self._init.client_pid:
            return silence_s > _SILENCE_S
        try:
            # Signal 0 only checks whether the process exists.
            os.kill(self._init.client_pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # the client runs as another user
            pass
        return silence_s > _SILENCE_WITH_PID_S

    def _tell_status(self) -> bool:
        share = self._time.share  # without one the client uses the server's estimate, or the last value
        fraction = "" if share is None else f"<fraction_done>{share:e}</fraction_done>\n"
        return self._channels.send(
            Channel.STATUS,
            f"<current_cpu_time>{self._cpu_s():e}</current_cpu_time>\n"
            f"<checkpoint_cpu_time>{self._checkpoint_cpu_s:e}</checkpoint_cpu_time>\n"
            f"{fraction}",
        )

    def _end_in_time(self) -> None:
        if not self._asked_to_quit:
            return
        if self._end_by_s is None:
            self._end_by_s = time.monotonic() + _END_WITHIN_S
            self._may_go_on.set()
        if not self._is_training:
            self._leave(0, "ends before anything was trained")
        if time.monotonic() > self._end_by_s:
            self._leave(0, "ends without a new checkpoint: the training did not stop in time")

    def _cpu_s(self) -> float:
        """Return the processor seconds of this task so far, in earlier processes, this process and its children."""
        times = os.times()
        return self._init.cpu_s + time.process_time() + times.children_user + times.children_system

    @staticmethod
    def _leave(status: int, why: str) -> NoReturn:
        _log.warning("%s", why)
        sys.stderr.flush()
        os._exit(status)
