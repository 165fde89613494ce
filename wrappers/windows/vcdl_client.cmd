@echo off
rem The program below BOINC's wrapper on Windows (never run yet): finds a Python that can train, and runs the client with it.
rem Messages go to stderr.txt, which the BOINC client sends to the project. 206 is BOINC's EXIT_INIT_FAILURE.
setlocal
set "client=%~dpn0.pyz"
if not exist "%client%" set "client=vcdl_client.pyz"
set "needed=('numpy', 'h5py', 'keras', os.environ.get('KERAS_BACKEND', 'tensorflow'))"
set "test=import os, sys; from importlib.util import find_spec; sys.exit(sys.version_info < (3, 11) or not all(find_spec(name) for name in %needed%))"

for %%P in ("%VCDL_PYTHON%" "%ProgramFiles%\vcdl\python.exe" "python.exe") do (
    if not "%%~P"=="" (
        "%%~P" -c "%test%" >nul 2>nul
        if not errorlevel 1 (
            set "python=%%~P"
            goto found
        )
    )
)
echo vcdl_client: no Python 3.11 or newer with NumPy, h5py, Keras and TensorFlow: install one, or set VCDL_PYTHON for the BOINC client 1>&2
exit 206

:found
"%python%" "%client%" %*
exit %errorlevel%
