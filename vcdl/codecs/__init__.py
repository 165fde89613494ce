"""Encode weights for sending: exact, rounded, quantised or sparse, one codec per file.

Pure NumPy without state: any server decodes any upload.
"""
