"""One file per command: a function of plain values that returns an exit code, and the click command that calls it."""
