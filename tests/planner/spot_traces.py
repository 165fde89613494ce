"""The spot traces beside the checkout, where they are: ../shared/traces, not part of the repository."""

import json

import pytest

from tests.places import ROOT

FOLDER = ROOT.parent / "shared" / "traces"


def traces() -> list[tuple[float, list[bool]]]:
    """Seconds between points, and whether there is capacity at each; skips the test where there are none."""
    files = sorted((FOLDER / "spot").glob("*.json"))
    if not files:
        pytest.skip(f"{FOLDER}/spot has no traces: the public set of skypilot-org/spot-traces")
    found = []
    for file in files:
        raw = json.loads(file.read_text())
        found.append((float(raw["metadata"]["gap_seconds"]), [count > 0 for count in raw["data"]]))
    return found
