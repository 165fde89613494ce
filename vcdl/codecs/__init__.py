"""How weights travel: exact, rounded, quantised or thinned out, one codec a file. Pure NumPy, and no state: any server decodes any upload."""
