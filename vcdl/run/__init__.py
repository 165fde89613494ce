"""A run on disk: its folder, its files, and the code that finds, checks, repairs and reads it."""
