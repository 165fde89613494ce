"""Fuzzing: hostile and damaged bytes for everything that reads bytes of others (tests/README.md, decision 028)."""
