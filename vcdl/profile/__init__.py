"""Measure where the time of a run goes, stage by stage, and which change would reduce it."""
