"""The daemons of VCDL on a BOINC server.

config.xml lists them; BOINC's bin/start and bin/stop start, watch and stop them.
"""

import os

# NumPy reads it when it is imported. On a busy machine its threads wait for each other: a fold then took 20 times as
# much of the processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
