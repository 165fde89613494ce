"""One file for each kind of bytes that come from others."""
