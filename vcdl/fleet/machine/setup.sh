#!/bin/sh
# Makes this machine a client of the project. vcdl-setup.service runs it at every boot, and again after a failure:
# a finished step is skipped, an unfinished one repeated.
set -eu
umask 022
etc=${VCDL_ETC:-/etc/vcdl}         # cloud-init's files: account_PROJECT.xml, requirements.txt, the BOINC client's settings
runtime=${VCDL_RUNTIME:-/opt/vcdl} # where vcdl_client looks for its Python
export DEBIAN_FRONTEND=noninteractive
export TMPDIR="${TMPDIR:-/var/tmp}" # TensorFlow does not fit into a /tmp in memory

say() { echo "vcdl-setup: $*"; }

has() { command -v "$1" >/dev/null 2>&1; }

can_train() {
    "$1" -c 'from importlib.util import find_spec as f; assert f("numpy") and f("h5py") and f("keras") and f("tensorflow")' 2>/dev/null
}

if ! has boinc || ! has boinccmd || ! { can_train "$runtime/bin/python" || python3 -c 'import ensurepip' 2>/dev/null; }; then
    say "installing the BOINC client"
    dpkg --configure -a
    apt-get -q -o DPkg::Lock::Timeout=600 update
    apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends boinc-client python3-venv
fi

if ! can_train "$runtime/bin/python"; then
    say "installing TensorFlow"
    rm -rf "$runtime.new"
    python3 -m venv "$runtime.new"
    "$runtime.new/bin/python" -m pip install --quiet --cache-dir "$runtime.cache" --retries 10 --require-hashes --only-binary :all: --requirement "$etc/requirements.txt"
    can_train "$runtime.new/bin/python" || { say "the installed Python cannot train"; exit 1; }
    rm -rf "$runtime"
    mv "$runtime.new" "$runtime" # in one step: it has its name only when it is complete
    rm -rf "$runtime.cache"
fi

. "${0%/*}/attach.sh"
if ! grep -q no_gpus "$etc/cc_config.xml" && ! boinccmd --get_messages | grep -Eq 'NVIDIA (GPU [0-9]|\(GPU\))'; then
    say "the BOINC client sees no GPU; nvidia-smi: $(nvidia-smi -L 2>&1)"
    systemctl restart boinc-client.service # it looks for GPUs when it starts; the driver may come later, and its devices now
    exit 1
fi
say "done"
