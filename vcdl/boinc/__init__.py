"""BOINC: the grid on a project's server, its daemons, installation and doctor."""
