#!/usr/bin/env python3
"""Ask the resident checker to check an upload: `vcdl_ask.py validate FILE`.

    exit 0     the checker accepts the upload
    exit 10    it refuses it; the reason is on stderr
    exit 64    it does not run, is too late, or cannot decide: the launcher starts the whole program

Imports are kept to a minimum, because the launcher runs this with `-I -S` for each upload. The protocol is in
vcdl/boinc/daemons/checker.py.
"""

import _socket  # importing socket itself would take as long as starting Python
import os
import sys

_ASK_IN_PERSON = 64
"""The exit code after which the launcher starts the whole program."""
_TAKEN_WITHIN_S = 5.0
"""Seconds in which a process of the checker must accept the request, so that a checker that hangs costs little."""
_ANSWERED_WITHIN_S = 300.0
"""Seconds for which the verdict is awaited: longer than the 240 s after which a checking process kills itself."""
_MOST_BYTES = 1 << 16
"""Most bytes of an answer that are read, so that a broken checker cannot fill the memory."""
_CREDENTIALS_BYTES = 12
"""struct ucred: pid, uid, gid."""


def ask(address: str, arguments: list[str]) -> tuple[int, str]:
    """Return the checker's exit code and its reason.

    Args:
        address: The path of the checker's socket.
        arguments: `validate` and the file.

    Raises:
        OSError: No checker listens, or it answers too late.
        ValueError: It has not accepted the request, or cannot decide.
    """
    here = os.getcwd()
    words = [arguments[0], *(os.path.join(here, file) for file in arguments[1:])]
    asked = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        asked.settimeout(_TAKEN_WITHIN_S)
        asked.connect(address)
        peer = asked.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS_BYTES)
        if int.from_bytes(peer[4:8], sys.byteorder) != os.geteuid():
            raise ValueError("the checker is another user's")
        asked.sendall(b"\0".join(map(os.fsencode, words)) + b"\n")
        if asked.recv(1) != b".":
            raise ValueError("the checker has not accepted the request")
        asked.settimeout(_ANSWERED_WITHIN_S)
        answer = b""
        while len(answer) < _MOST_BYTES and (more := asked.recv(4096)):
            answer += more
    finally:
        asked.close()
    code, _, why = answer.partition(b" ")
    if not why.endswith(b"\0") or code not in (b"0", b"10"):
        raise ValueError("the checker cannot decide")
    return int(code), why[:-1].decode(errors="replace")


def main() -> int:
    """Ask once, and return the exit code."""
    arguments = sys.argv[1:]
    if len(arguments) < 2 or any(word.startswith("-") or "\n" in word for word in arguments):
        return _ASK_IN_PERSON
    # Not __file__, which is absolute and may be too long: the address of a socket has at most 108 bytes.
    address = os.path.join(os.path.dirname(sys.argv[0]), "..", "vcdl", "checker.sock")
    try:
        code, why = ask(address, arguments)
    except (OSError, ValueError):
        return _ASK_IN_PERSON
    if why:
        print(why, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
