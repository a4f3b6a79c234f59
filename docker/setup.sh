#!/bin/sh
# Installs only the missing packages, with apt. `setup.sh` is for building; `setup.sh test`, `setup.sh packages`,
# `setup.sh fuzz`, `setup.sh format`, `setup.sh browser`, `setup.sh clients` and `setup.sh cuda` add packages for these. If
# nothing is missing, it takes some hundredths of a second.
set -eu

packages="gcc libc6-dev cmake ninja-build pkg-config git curl ca-certificates
libmicrohttpd-dev libuv1-dev libcjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libyaml-dev libedit-dev libsystemd-dev
libsodium-dev libcurl4-openssl-dev libssl-dev libzmq3-dev libmsgpack-dev libhiredis-dev check
python3 python3-venv python3-pip"
for need in "$@"; do
    case $need in
    test)
        packages="$packages g++ wrk systemd redis-server openmpi-bin libopenmpi-dev iproute2"
        # Another package's kubectl serves as well, and Debian's cannot be installed beside it.
        command -v kubectl >/dev/null || packages="$packages kubernetes-client"
        ;;
    fuzz) packages="$packages clang libclang-rt-14-dev" ;;
    format) packages="$packages clang-format" ;;
    browser) packages="$packages chromium fonts-dejavu-core" ;;
    packages) packages="$packages make binutils man-db groff-base systemd bash-completion zsh fish dpkg-dev file shellcheck" ;;
    packages_soak) packages="$packages lintian debootstrap buildah" ;;
    cuda) packages="$packages g++" ;;
    clients) packages="$packages nginx-light haproxy apache2-utils wrk" ;;
    *) echo "setup.sh: unknown set \"$need\"; the sets are test, packages, packages_soak, fuzz, format, browser, clients and cuda" >&2; exit 2 ;;
    esac
done

if ! command -v dpkg-query >/dev/null; then
    echo "setup.sh: this system is not Debian or Ubuntu, so nothing was installed. The build needs what these packages contain:" >&2
    echo "$packages" >&2
    exit 0
fi

# shellcheck disable=SC2086  # the list is to be split into words
installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $packages 2>/dev/null || :)
missing=
for package in $packages; do
    case "
$installed
" in
    *"
ii  $package
"*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=sudo
else
    echo "setup.sh: packages are missing, and only root can install them. Run as root:" >&2
    echo "    apt-get update && apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

echo "setup.sh: installing$missing"
log=$(mktemp)
policy=/usr/sbin/policy-rc.d
trap 'rm -f "$log"' EXIT
# The tests run the servers among the packages, so they must not start as services.
if [ ! -e $policy ]; then
    trap 'rm -f "$log"; $as_root rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod +x $policy
fi
# shellcheck disable=SC2086
if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup.sh: apt could not install$missing; the end of its output is above" >&2
    exit 1
fi
