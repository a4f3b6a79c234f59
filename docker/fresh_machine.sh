#!/bin/sh
# Proves that `make run` and `make test` work on a bare Debian 12: in a new root folder with only git, make and python3,
# with a clone of HEAD. It uses this machine's access to the package registries (apt sources, settings of apt and pip,
# certificates) and needs root, for chroot. `fresh_machine.sh run` skips the tests; KEEP=1 keeps the root folder.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
stages=${*:-run test}
port=${PORT:-18080}
root=$(mktemp -d "${TMPDIR:-/var/tmp}/penstock_fresh_XXXXXX")
minutes=

if [ "$(id -u)" != 0 ]; then
    echo "fresh_machine.sh: run it as root, which chroot requires: sudo make fresh-machine" >&2
    exit 1
fi
command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get -qy install debootstrap

# The processes that run in the root folder, or only those with the name $1.
in_root() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/root" 2>/dev/null)" = "$root" ] || continue
        [ -z "${1:-}" ] || [ "$(cat "$process/comm" 2>/dev/null)" = "$1" ] || continue
        echo "${process#/proc/}"
    done
}

# The mounts belong to the mount namespace of these processes and disappear with the last of them.
clean_up() {
    code=$?
    for process in $(in_root); do kill -KILL "$process" 2>/dev/null || :; done
    if [ "${KEEP:-}" = 1 ]; then echo "kept: $root"; else rm -rf --one-file-system "$root"; fi
    printf '\n== fresh machine\n%s' "$minutes"
    [ $code = 0 ] && echo "passed" || echo "FAILED"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# timed NAME COMMAND...: runs the command and records its time.
timed() {
    what=$1
    shift
    began=$(date +%s)
    printf '\n== %s\n' "$what"
    "$@" || {
        minutes="$minutes$(printf '%-14s failed' "$what")
"
        exit 1
    }
    took=$(($(date +%s) - began))
    minutes="$minutes$(printf '%-14s %d min %02d s' "$what" $((took / 60)) $((took % 60)))
"
}

# inside COMMAND: runs a shell command in the root folder, with its own processes and mounts, and with the variables that say
# how to reach the registries.
inside() {
    kept=$(env | sed -n -E 's/^((https?|no|all|HTTPS?|NO|ALL)_(proxy|PROXY)|PIP_[A-Z_]*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=.*/\1/p' |
        grep -v PIP_FIND_LINKS || :)
    set -- "$1" HOME=/root TERM=dumb LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    for name in $kept; do set -- "$@" "$name=$(printenv "$name")"; done
    command=$1
    shift
    env -i "$@" unshare --mount --pid --fork --kill-child=KILL sh -c '
        set -e
        mount --make-rprivate /
        mount -t proc proc "$0/proc"
        mount --rbind /dev "$0/dev"
        exec chroot "$0" sh -c "cd /root/penstock 2>/dev/null || cd /; $1"' "$root" "$command"
}

make_root() {
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
    debootstrap --variant=minbase --include=ca-certificates,git,make,python3 bookworm "$root" \
        "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 || {
        tail -n 20 "$root.log"
        return 1
    }
    rm -f "$root.log"
}

copy_settings() {
    rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d"
    mkdir -p "$root/etc/apt/sources.list.d"
    [ ! -f /etc/apt/sources.list ] || cp /etc/apt/sources.list "$root/etc/apt/"
    for file in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
        if [ -f "$file" ] && grep -q debian "$file"; then cp "$file" "$root/etc/apt/sources.list.d/"; fi
    done
    apt-config dump Acquire >"$root/etc/apt/apt.conf.d/99fresh"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    if [ -d /usr/local/share/ca-certificates ]; then
        mkdir -p "$root/usr/local/share/ca-certificates"
        cp -R /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    fi
}

# Starts `make run`, waits for one completion, and checks that the server ends with exit code 0 on SIGTERM.
make_run() {
    inside "exec setsid make run ARGS='--port $port --drain-delay 0'" &
    machine=$!
    python3 - "$port" "$machine" <<'PYTHON' || return 1
import json, os, sys, time, urllib.request
port, machine = int(sys.argv[1]), int(sys.argv[2])
body = json.dumps({"prompt": "Water flows", "max_tokens": 8, "temperature": 0}).encode()
request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
open_directly = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
for _ in range(1800):
    try:
        os.kill(machine, 0)
        answer = json.load(open_directly(request, timeout=60))
        print("served:", json.dumps(answer["choices"][0]["text"]), answer["usage"])
        sys.exit(0)
    except ProcessLookupError:
        sys.exit("make run ended before it served a request")
    except OSError:
        time.sleep(1)
sys.exit("make run served no request within half an hour")
PYTHON
    kill -TERM "$(in_root penstock)"
    wait "$machine"
}

make_test() {
    inside "exec make test"
}

timed debootstrap make_root
timed settings copy_settings
timed clone git clone -q --no-hardlinks "file://$source" "$root/root/penstock"
inside "cat /etc/debian_version; dpkg-query -f . -W | wc -c; command -v cc cmake curl pip3 || echo no compiler, no cmake, no curl, no pip"
for stage in $stages; do timed "make $stage" "make_$stage"; done
