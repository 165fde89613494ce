"""The daemons of VCDL on a BOINC server.

config.xml lists them; BOINC's bin/start and bin/stop start, watch and stop them.
"""

import os

# Set before NumPy is imported, which reads it once. On a busy machine the threads of BLAS wait for each other, and
# applying an upload then took 20 times as much processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
