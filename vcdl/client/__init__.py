"""The client that trains on a volunteer's machine. It needs NumPy and Keras, and nothing of vcdl's server side."""
