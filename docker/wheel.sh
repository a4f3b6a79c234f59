#!/bin/sh
# wheel.sh FOLDER [BUILD]: makes the Python wheel of BUILD (build/cpu) in FOLDER: the program with its shared libraries, man
# pages, completion, and the licences of all. Its tag names the glibc of this machine. Libraries that the program loads by
# dlopen are not in it: libcurl and libcrypto need the system's certificates and repairs. The same program and libraries
# give the same bytes: all times are that of the last commit, or SOURCE_DATE_EPOCH.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd) build=${2:-build/cpu}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
PENSTOCK_VERSION=$(sed -n 's/^project(penstock VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
export PENSTOCK_VERSION

docker/venv.sh build/release/venv deploy/requirements.txt
python=$PWD/build/release/venv/bin/python
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
cp -r deploy/wheel/. "$stage"
mkdir "$stage/penstock/bin" "$stage/libraries"
strip -o "$stage/penstock/bin/penstock" "$build/penstock"
DESTDIR="$stage/installed" cmake --install "$build" --prefix / --component Unspecified >/dev/null
mkdir "$stage/share"
cp -r "$stage/installed/share/man" "$stage/installed/share/bash-completion" "$stage/share"
mkdir -p "$stage/share/zsh/site-functions" "$stage/share/fish"
cp "$stage/installed/share/zsh/vendor-completions/_penstock" "$stage/share/zsh/site-functions"
cp -r "$stage/installed/share/fish/vendor_completions.d" "$stage/share/fish"
rm -r "$stage/installed"

# The licence of each Debian package whose library goes into the wheel; glibc stays the system's.
cp LICENSE "$stage"
python3 docker/linked.py "$build" >"$stage/linked"
while read -r package _ how; do
    case $package-$how in
    libc6-* | *-loaded) ;;
    *) cp -L "/usr/share/doc/$package/copyright" "$stage/libraries/$package" ;;
    esac
done <"$stage/linked"

cd "$stage"
make() {
    "$python" -m hatchling build -t wheel -d "$stage/made" &&
        PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --only-plat -w "$folder" \
            --plat "manylinux_$(getconf GNU_LIBC_VERSION | sed 's/glibc //; s/\./_/')_$(uname -m)" "$stage"/made/*.whl
}
make >"$stage/log" 2>&1 || {
    cat "$stage/log" >&2
    exit 1
}
ls "$folder"/*.whl
