"""What a test needs besides Python, and so when it is run: docs/testing.md."""

TIERS = {
    "keras": "imports Keras or TensorFlow",
    "process": "starts a process",
    "server": "starts a Redis or a MariaDB, or opens a server's socket",
    "boinc": "needs BOINC's real client, or the stand-in of its server",
    "soak": "long runs under fire (make soak); set by hand",
    "nightly": "proves again what a cheaper test proves (make nightly); set by hand",
}
"""Each is a marker. The first four are set by tests/conftest.py, from what a test can reach."""

QUICK = "quick"
"""The marker of the tests that are in no tier: make quick."""
