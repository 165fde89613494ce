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
    "$runtime.new/bin/python" -m pip install --quiet --cache-dir "$runtime.cache" --retries 10 --requirement "$etc/requirements.txt"
    can_train "$runtime.new/bin/python" || { say "the installed Python cannot train"; exit 1; }
    rm -rf "$runtime"
    mv "$runtime.new" "$runtime" # in one step: it has its name only when it is complete
    rm -rf "$runtime.cache"
fi

folder=$(systemctl show --property=WorkingDirectory --value boinc-client.service)
[ -d "$folder" ] || { say "the BOINC client has no data folder: '$folder'"; exit 1; }
changed=no
for name in cc_config.xml global_prefs_override.xml; do
    cmp -s "$etc/$name" "$folder/$name" && continue
    cat "$etc/$name" >"$folder/$name" # through Debian's link
    changed=yes
done
if ! ls "$folder"/account_*.xml >/dev/null 2>&1; then
    say "attaching"
    for account in "$etc"/account_*.xml; do
        (umask 077; cat "$account" >"$folder/account.new")
        chown --reference="$folder" "$folder/account.new"
        mv "$folder/account.new" "$folder/${account##*/}"
    done
    changed=yes
fi
systemctl daemon-reload
systemctl enable --quiet boinc-client.service
if [ $changed = yes ]; then systemctl restart boinc-client.service; else systemctl start boinc-client.service; fi

cd "$folder" # boinccmd reads its password there
tries=0
until boinccmd --get_cc_status >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || { say "the BOINC client does not answer"; exit 1; }
    sleep 1
done
if ! boinccmd --get_project_status | grep -q 'master URL: '; then
    say "the BOINC client runs without its account"
    systemctl restart boinc-client.service # it reads accounts when it starts
    exit 1
fi
say "done"
