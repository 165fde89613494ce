"""Fuzzing: hostile and damaged bytes for everything that reads bytes of others (docs/testing.md, decision 028)."""
