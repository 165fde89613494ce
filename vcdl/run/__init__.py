"""A run: its folder, what lies in it, and what finds, repairs and reads it."""
