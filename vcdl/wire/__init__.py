"""The formats that client and server share: workunits, weights and their files. NumPy only."""
