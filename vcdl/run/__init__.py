"""A run: its folder, what lies in it, and what finds, mends and reads it."""
