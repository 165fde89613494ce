"""The load that one BOINC server carries: simulated hosts that speak the real protocol (`vcdl bench boinc`)."""
