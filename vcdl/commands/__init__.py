"""The commands, one module each: a function of plain values that returns an exit code, and its click command."""
