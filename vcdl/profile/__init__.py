"""Where the time of a run goes, stage by stage, and what would change it."""
