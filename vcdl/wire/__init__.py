"""The formats that client and server share: workunits, weights and their files. It needs NumPy only."""
