"""What runs on a BOINC server beside BOINC's own daemons: listed in config.xml, started, watched and ended by bin/start and bin/stop."""
