"""Files: written whole or not at all, locked, and those that come with VCDL."""
