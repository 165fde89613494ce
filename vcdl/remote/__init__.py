"""Use a service on another machine as a client."""
