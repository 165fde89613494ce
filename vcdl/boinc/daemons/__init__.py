"""The daemons of VCDL on a BOINC server: listed in config.xml; bin/start and bin/stop start, watch and end them."""
