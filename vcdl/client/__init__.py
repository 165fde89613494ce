"""The client that runs on a volunteer's machine: needs NumPy and Keras, and nothing of vcdl's server side."""
