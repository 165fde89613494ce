@echo off
rem The program below BOINC's wrapper on Windows (run by Wine's cmd only): finds a Python that can train, and runs the client with it.
rem Messages go to stderr.txt, which the BOINC client sends to the project. 206 is BOINC's EXIT_INIT_FAILURE.
setlocal
set "client=%~dpn0.pyz"
if not exist "%client%" set "client=vcdl_client.pyz"
set "needed=('numpy', 'h5py', 'keras', os.environ.get('KERAS_BACKEND', 'tensorflow'))"
set "test=import os, sys; from importlib.util import find_spec; sys.exit(sys.version_info < (3, 11) or not all(find_spec(name) for name in %needed%))"
set "python="
rem On a full disk Python keeps half of a module's byte-code, and can never import that module again.
set "options=-B"

if not "%VCDL_PYTHON%"=="" call :try "%VCDL_PYTHON%"
if "%python%"=="" if exist vcdl_runtime.tar call :delivered
if "%python%"=="" call :try "%ProgramFiles%\vcdl\python.exe"
if "%python%"=="" call :try "python.exe"
if "%python%"=="" (
    echo vcdl_client: no Python 3.11 or newer with NumPy, h5py, Keras and TensorFlow: install one, or set VCDL_PYTHON for the BOINC client 1>&2
    exit 206
)
"%python%" %options% "%client%" %*
exit %errorlevel%

rem A Python that cannot be started ends with a negative number, which `if errorlevel 1` takes for success.
:try
"%~1" -B -c "%test%" >nul 2>nul
if "%errorlevel%"=="0" set "python=%~1"
exit /b 0

rem The Python of a runtime is unpacked once for all tasks, beside its archive; the client then unpacks its packages.
rem The slot holds a line <soft_link>PATH</soft_link>. Windows has tar, with gzip, since 2018.
:delivered
for /f "usebackq tokens=2 delims=<>" %%P in ("vcdl_runtime.tar") do set "VCDL_RUNTIME_ARCHIVE=%%P"
set "VCDL_RUNTIME_ARCHIVE=%VCDL_RUNTIME_ARCHIVE:/=\%"
set "unpacked=%VCDL_RUNTIME_ARCHIVE%.unpacked"
if not exist "%unpacked%\python.exe" (
    set "growing=%unpacked%.%RANDOM%%RANDOM%"
    call :unpack
)
if exist "%unpacked%\python.exe" (
    set "python=%unpacked%\python.exe"
    set "options=-I -B"
) else (
    echo vcdl_client: the Python that came with the app version could not be unpacked 1>&2
)
exit /b 0

:unpack
echo vcdl_client: unpacking Python, once for all tasks 1>&2
mkdir "%growing%"
"%SystemRoot%\System32\tar.exe" -xOf "%VCDL_RUNTIME_ARCHIVE%" python.tar.gz | "%SystemRoot%\System32\tar.exe" -xzf - -C "%growing%"
if exist "%growing%\python.exe" call :named
if exist "%growing%" rmdir /s /q "%growing%"
exit /b 0

rem The folder gets its name when its Python has run here, and ended: Windows renames no folder in which a program runs,
rem or in which a virus scanner reads a file.
:named
"%growing%\python.exe" -I -B -S -c ""
if not "%errorlevel%"=="0" exit /b 0
for %%U in ("%unpacked%") do set "name=%%~nxU"
set tries=20
:again
ren "%growing%" "%name%" 2>nul
if exist "%unpacked%\python.exe" exit /b 0
set /a tries-=1
if %tries%==0 exit /b 0
ping -n 2 127.0.0.1 >nul
goto again
