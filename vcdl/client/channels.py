"""The shared memory between the BOINC client and a task: eight channels of 1024 bytes.

A channel is a flag, 1 while its message is unread, and a text that ends with a zero byte.
"""

import mmap
from enum import IntEnum
from pathlib import Path

from vcdl.client.slot import SlotError

CHANNELS_FILE = "boinc_mmap_file"
_CHANNEL_BYTES = 1024
"""Bytes of a channel, as BOINC's protocol sets them, because both sides map the same file."""
_CHANNELS = 8
"""Channels of the shared file, as BOINC's protocol sets them, because both sides map the same file."""
_TEXT_LIMIT_BYTES = _CHANNEL_BYTES - 2


class Channel(IntEnum):
    """The three of the eight channels that VCDL uses."""

    CONTROL = 0
    """Client to task: `<suspend/> <resume/> <quit/> <abort/>`."""
    HEARTBEAT = 4
    """Client to task, each second: `<heartbeat/>` and figures."""
    STATUS = 5
    """Task to client: processor time, checkpoint, fraction done."""


class Channels:
    """The channels in the slot's file, as a task uses them: it receives from the client and sends to it."""

    def __init__(self, slot: Path) -> None:
        """Map the slot's file.

        Raises:
            SlotError: The file is missing or has the wrong size.
        """
        try:
            with (slot / CHANNELS_FILE).open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), _CHANNELS * _CHANNEL_BYTES)
        except (OSError, ValueError) as error:
            raise SlotError(f"{CHANNELS_FILE} cannot be used ({error}): restart the BOINC client") from error

    def is_full(self, channel: Channel) -> bool:
        """Return whether the channel contains an unread message."""
        return self._memory[channel * _CHANNEL_BYTES] != 0

    def receive(self, channel: Channel) -> str | None:
        """Remove and return the channel's message, or return None if there is none."""
        if not self.is_full(channel):
            return None
        begin = channel * _CHANNEL_BYTES
        text = self._memory[begin + 1 : begin + _CHANNEL_BYTES].partition(b"\0")[0]
        # Clear the flag last: from then on the client may write the next message over this one.
        self._memory[begin] = 0
        return text.decode("utf-8", errors="replace")

    def send(self, channel: Channel, message: str) -> bool:
        """Write a message of at most 1022 bytes into the channel; return False while the previous one is unread."""
        data = message.encode()
        if len(data) > _TEXT_LIMIT_BYTES:
            raise ValueError(f"a message of {len(data)} bytes for a channel of at most {_TEXT_LIMIT_BYTES}")
        if self.is_full(channel):
            return False
        begin = channel * _CHANNEL_BYTES
        self._memory[begin + 1 : begin + 2 + len(data)] = data + b"\0"
        # Set the flag last: the client reads the text as soon as it sees it.
        self._memory[begin] = 1
        return True
