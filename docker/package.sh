#!/bin/sh
# package.sh FOLDER [BUILD]: makes the Debian package of BUILD (build) in FOLDER. The same sources give the same bytes: all
# times in it are that of the last commit, or SOURCE_DATE_EPOCH.
# DEBIAN_REVISION=2 is for a second package of one version.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd) build=${2:-build}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

cmake "$build" >/dev/null
cmake --build "$build" --target installed -- --quiet
log=$(mktemp)
trap 'rm -f "$log"' EXIT
umask 022
cpack --config "$build/CPackConfig.cmake" -D CPACK_DEBIAN_PACKAGE_RELEASE="${DEBIAN_REVISION:-1}" -B "$folder" >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
}
rm -rf "$folder/_CPack_Packages"
ls "$folder"/*.deb
