"""A wall clock that a test moves under running processes, as a wrong time server does.

A small library before libc answers all questions for the time of day, and adds what a file says. Monotonic clocks
stay as they are, as they do on a real machine.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void) {
    const char *path = getenv("JUMPING_CLOCK");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += offset_s();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
"""


@dataclass(frozen=True)
class JumpingClock:
    """A clock for processes that are started with its `environment`."""

    library: Path
    offset: Path

    @classmethod
    def make(cls, folder: Path) -> "JumpingClock | None":
        """Compile the library in `folder`; None: there is no compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        clock = cls(folder / "jumping_clock.so", folder / "clock_offset_s")
        clock.jump(0)
        command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(clock.library), "-ldl"]
        subprocess.run(command, input=SOURCE, text=True, check=True)
        return clock

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "JUMPING_CLOCK": str(self.offset)}

    def jump(self, offset_s: int) -> None:
        """Let the clock be this much ahead of the true time."""
        beside = self.offset.with_suffix(".new")
        beside.write_text(str(offset_s))
        os.replace(beside, self.offset)
