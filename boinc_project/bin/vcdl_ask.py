#!/usr/bin/env python3
"""Asks the resident checker: `vcdl_ask.py validate FILE`.

    exit 0     the checker accepts
    exit 10    it refuses, and says why on stderr
    exit 64    it is away, too late, or cannot say: the launcher starts the whole program

Only what starts quickly is imported: the launcher runs this with `-I -S` for each upload. The protocol is in
vcdl/boinc/daemons/checker.py.
"""

import _socket  # socket itself imports for as long as Python starts
import os
import sys

_ASK_IN_PERSON = 64
_TAKEN_WITHIN_S = 5.0
_ANSWERED_WITHIN_S = 300.0
_MOST_BYTES = 1 << 16
_CREDENTIALS_BYTES = 12
"""struct ucred: pid, uid, gid."""


def ask(address: str, arguments: list[str]) -> tuple[int, str]:
    """The checker's exit code and words. Raises OSError or ValueError when it gives none."""
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
            raise ValueError("the checker has not taken it")
        asked.settimeout(_ANSWERED_WITHIN_S)
        answer = b""
        while len(answer) < _MOST_BYTES and (more := asked.recv(4096)):
            answer += more
    finally:
        asked.close()
    code, _, why = answer.partition(b" ")
    if not why.endswith(b"\0") or code not in (b"0", b"10"):
        raise ValueError("the checker cannot say")
    return int(code), why[:-1].decode(errors="replace")


def main() -> int:
    """Ask once; returns the exit code."""
    arguments = sys.argv[1:]
    if len(arguments) < 2 or any(word.startswith("-") or "\n" in word for word in arguments):
        return _ASK_IN_PERSON
    # Not __file__, which is absolute: the address of a socket has 108 bytes at most.
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
