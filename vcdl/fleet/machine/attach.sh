# Gives the BOINC client of this machine our settings and the project's account, both from $etc; read by a POSIX shell.
folder=$(systemctl show --property=WorkingDirectory --value boinc-client.service)
[ -d "$folder" ] || { say "the BOINC client has no data folder: '$folder'"; exit 1; }
changed=no
for name in cc_config.xml global_prefs_override.xml; do
    cmp -s "$etc/$name" "$folder/$name" && continue
    cat "$etc/$name" >"$folder/$name" # through Debian's link
    changed=yes
done
for account in "$etc"/account_*.xml; do
    [ -e "$folder/${account##*/}" ] && continue
    say "attaching"
    (umask 077; cat "$account" >"$folder/account.new")
    chown --reference="$folder" "$folder/account.new"
    mv "$folder/account.new" "$folder/${account##*/}"
    changed=yes
done
# After an outage of minutes the client would wait a quarter of an hour with its uploads, and in the end six hours.
retries=${VCDL_UNITS:-/etc/systemd/system}/boinc-client.service.d/vcdl-retries.conf
program=$(systemctl show --property=ExecStart --value boinc-client.service | sed -n 's/^{ path=\([^ ;]*\).*/\1/p')
if [ -n "$program" ] && [ ! -e "$retries" ]; then
    mkdir -p "${retries%/*}"
    printf '[Service]\nExecStart=\nExecStart=%s --pers_retry_delay_max 120\n' "$program" >"$retries.new"
    mv "$retries.new" "$retries"
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
