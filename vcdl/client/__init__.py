"""What runs on a volunteer's machine: needs NumPy, h5py and Keras, and nothing of vcdl's server side."""
