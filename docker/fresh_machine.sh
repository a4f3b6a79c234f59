#!/bin/sh
# Checks that README's two commands work on a bare Debian 12. debootstrap makes a root folder with only git, make and
# python3, and a clone of HEAD goes into it, without build folder and ccache. `make run` must serve one completion there and
# end with code 0; `make test` must pass. apt and pip fetch everything else, with this machine's access to the
# registries (apt sources, proxies, certificates). It needs root, for chroot. The last lines are the time of each stage, and
# the exit code is that of the stage that failed.
#
# `fresh_machine.sh run` skips the tests. KEEP=1 keeps the root folder, PORT=9000 serves there, TMPDIR is the folder
# for the root folder.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
stages=${*:-run test}
port=${PORT:-18080}
times=

for stage in $stages; do
    case $stage in
    run | test) ;;
    *) echo "fresh_machine.sh: unknown stage \"$stage\"; the stages are run and test" >&2; exit 2 ;;
    esac
done
if [ "$(id -u)" != 0 ]; then
    echo "fresh_machine.sh: run it as root, which chroot requires: sudo make fresh-machine" >&2
    exit 1
fi
if ! command -v debootstrap >/dev/null; then
    if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qqy install --no-install-recommends debootstrap; }; then
        echo "fresh_machine.sh: apt could not install debootstrap; see its message above" >&2
        exit 1
    fi
fi
root=$(realpath "$(mktemp -d "${TMPDIR:-/var/tmp}/penstock_fresh_XXXXXX")")

# The processes that descend from process $1.
descendants() {
    # shellcheck disable=SC2013  # the file is one line of words
    for process in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        echo "$process"
        descendants "$process"
    done
}

# The processes with the name $1 that run in the root folder.
in_root() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/root" 2>/dev/null)" = "$root" ] || continue
        [ "$(cat "$process/comm" 2>/dev/null)" != "$1" ] || echo "${process#/proc/}"
    done
}

# The processes in the root folder end with their `unshare`, and their mounts end with them. They are gone a moment later.
clean_up() {
    code=$?
    trap - EXIT
    trap '' INT TERM HUP
    # shellcheck disable=SC2046  # one word per process
    kill -KILL $(descendants $$) 2>/dev/null || :
    wait
    if [ "${KEEP:-}" = 1 ]; then
        echo "kept: $root"
    else
        rm -rf --one-file-system "$root" 2>/dev/null || { sleep 2 && rm -rf --one-file-system "$root"; } || code=1
    fi
    printf '\n== fresh machine\n%s' "$times"
    [ $code = 0 ] && echo "passed" || echo "FAILED"
    exit $code
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# timed NAME COMMAND...: runs the command and records its time. The shell waits for a background process, so that it
# obeys a signal at once.
timed() {
    what=$1 code=0
    shift
    began=$(date +%s)
    printf '\n== %s\n' "$what"
    "$@" &
    wait $! || code=$?
    took=$(($(date +%s) - began))
    [ $code = 0 ] && result= || result=", failed with code $code"
    times="$times$(printf '%-14s %3d min %02d s%s' "$what" $((took / 60)) $((took % 60)) "$result")
"
    [ $code = 0 ] || exit $code
}

# apart COMMAND...: runs a command whose processes and mounts end with it.
apart() {
    unshare --mount --pid --fork --kill-child=KILL "$@"
}

# inside COMMAND: runs a shell command in the clone in the root folder, with the variables that say how to reach the registries
# and no others of this machine.
inside() {
    kept=$(env | sed -n -E 's/^((https?|no|all|HTTPS?|NO|ALL)_(proxy|PROXY)|PIP_[A-Z_]*|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=.*/\1/p' |
        grep -v PIP_FIND_LINKS || :)
    command=$1
    set -- HOME=/root TERM=dumb LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    for name in $kept; do set -- "$@" "$name=$(printenv "$name")"; done
    # shellcheck disable=SC2016  # the inner shell expands $0 and $1
    apart env -i "$@" sh -c '
        set -e
        mount -t proc proc "$0/proc"
        mount --rbind /sys "$0/sys"
        mount --rbind /dev "$0/dev"
        exec chroot "$0" sh -c "cd /root/penstock; $1"' "$root" "$command"
}

make_root() {
    # shellcheck disable=SC2016  # apt expands $(REPO_URI)
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
    log=$root/debootstrap.log
    apart debootstrap --variant=minbase --include=ca-certificates,git,make,python3 bookworm "$root" \
        "${mirror:-http://deb.debian.org/debian}" >"$log" 2>&1 || {
        tail -n 20 "$log"
        return 1
    }
    rm -f "$log"
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

# The tree may belong to another user, which git must be told to accept.
clone() {
    git clone -q --no-hardlinks --upload-pack "git -c safe.directory='*' upload-pack" "file://$source" "$root/root/penstock"
    # shellcheck disable=SC2016  # the inner shell expands the variables
    inside 'git log --oneline -1
        echo "Debian $(cat /etc/debian_version), $(dpkg-query -f . -W | wc -c) packages, $(nproc) cores"
        for tool in cc cmake curl pip3 ccache; do
            ! command -v $tool || { echo "the new root has $tool already" >&2; exit 1; }
        done'
}

# Starts `make run`, waits for one completion, and checks that the server ends with exit code 0 on SIGTERM.
make_run() {
    inside "exec setsid make run ARGS='--port $port --drain-delay 0'" &
    machine=$!
    python3 - "$port" "$machine" <<'PYTHON'
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
timed clone clone
for stage in $stages; do timed "make $stage" "make_$stage"; done
