"""Draws that a client cannot foretell: they depend on the workunit and on a secret of the run."""

import hashlib


def is_drawn(secret: str, what_for: str, workunit: str, share: float) -> bool:
    """Whether a workunit is among the `share` (0 to 1) that is drawn; every process draws the same ones."""
    return int.from_bytes(rank(secret, what_for, workunit)) < share * 2.0**64


def rank(secret: str, what_for: str, workunit: str) -> bytes:
    """Eight bytes by which one of several workunits is drawn."""
    return hashlib.sha256(f"{secret}\0{what_for}\0{workunit}".encode()).digest()[:8]
