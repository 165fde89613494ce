"""The runtime of volunteers' machines: an archive with a Python, Keras and one backend, which BOINC delivers."""
