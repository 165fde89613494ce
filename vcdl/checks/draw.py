"""Draws that a client cannot foretell: they depend on the workunit and on a secret of the run."""

import hashlib


def rank(secret: str, what_for: str, workunit: str) -> bytes:
    """Eight bytes by which one of several workunits is drawn."""
    return hashlib.sha256(f"{secret}\0{what_for}\0{workunit}".encode()).digest()[:8]
