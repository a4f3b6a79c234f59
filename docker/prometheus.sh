#!/bin/sh
# Unpacks Debian's package of Prometheus (server and promtool) into build/clients/prometheus. It is not installed,
# because then it would run as a service of this machine.
set -eu
cd "$(dirname "$0")/.."
folder=$PWD/build/clients/prometheus

[ ! -x "$folder/usr/bin/prometheus" ] || exit 0
echo "prometheus.sh: unpacking prometheus"
rm -rf "$folder.new" "$folder"
mkdir -p "$folder.new"
cd "$folder.new"
# Without lists, or with old ones, root fetches them first.
fetch() {
    apt-get -qq download prometheus >log 2>&1
}
if ! fetch && ! { [ "$(id -u)" = 0 ] && apt-get -qq update >log 2>&1 && fetch; }; then
    cat log >&2
    echo "prometheus.sh: apt could not download the package prometheus; its lists may be old: run apt-get update as root" >&2
    exit 1
fi
dpkg-deb -x prometheus_*.deb .
mv "$folder.new" "$folder"
