"""What a test needs besides Python, and so when it is run: tests/README.md."""

TIERS = {
    "keras": "imports Keras or TensorFlow",
    "process": "starts a process",
    "server": "starts a Redis or a MariaDB, or opens a server's socket",
    "boinc": "needs BOINC's real client, or the stand-in of its server",
    "slow": "takes 0.3 s or more of a processor, or waits as long",
    "soak": "long runs under fire (make soak)",
    "nightly": "proves again what a cheaper test proves (make nightly)",
}
"""Each is a marker, set by hand for a module (`pytestmark = …`) or a test; the guard fails a test that lacks one."""

IMPLIED = {"server": ("process",), "boinc": ("process", "server")}
"""What a tier's tests may do besides."""

QUICK = "quick"
"""The marker of the tests that are in no tier: make quick."""
