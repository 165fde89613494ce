"""A whole server: installed on an empty machine, backed up, restored, upgraded and removed. Runs as root."""
