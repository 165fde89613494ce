"""Encodings of weights on the way: exact, rounded, quantised or sparse, one codec per file.

Pure NumPy without state: any server decodes any upload.
"""
