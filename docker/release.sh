#!/bin/sh
# release.sh FOLDER: makes a release of the last commit in FOLDER: sources, Debian package, Python wheel, SPDX document,
# and SHA256SUMS. The same commit on a machine with the same packages gives the same bytes, in whichever folder.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd)
version=$(sed -n 's/^project(penstock VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" PENSTOCK_CUDA=OFF
if [ -n "$(git status --porcelain)" ]; then
    echo "release.sh: this tree differs from its last commit; commit the changes, or clone it" >&2
    exit 1
fi
if [ -n "$(ls "$folder")" ]; then
    echo "release.sh: the folder $folder is not empty; name a new one" >&2
    exit 1
fi
docker/build.sh cpu "${JOBS:-$(nproc)}" installed
git -c tar.umask=0022 archive --format=tar --prefix="penstock-$version/" HEAD | gzip -9n >"$folder/penstock-$version.tar.gz"
docker/package.sh "$folder" build/cpu >/dev/null
docker/wheel.sh "$folder" build/cpu >/dev/null
build/release/venv/bin/python docker/sbom.py build/cpu "$version" "$folder/penstock-$version.spdx.json"
cd "$folder"
sha256sum -- * >.sums
mv .sums SHA256SUMS
cat SHA256SUMS
