#!/bin/sh
# venv.sh [FOLDER REQUIREMENTS]: makes a virtual environment with the pinned packages of a requirements file. Defaults: .venv
# and tests/requirements.txt. It is made again when that file or its Python changes.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-.venv} requirements=${2:-tests/requirements.txt}

wanted=$(sha256sum <"$requirements")
if [ "$(cat "$folder/.made_from" 2>/dev/null || :)" = "$wanted" ] && "$folder/bin/python" -c '' 2>/dev/null; then
    exit 0
fi
echo "venv.sh: making $folder from $requirements"
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r "$requirements"
"$folder/bin/python" -m pip check -q || {
    echo "venv.sh: $requirements lacks a dependency of one of its packages" >&2
    exit 1
}
echo "$wanted" >"$folder/.made_from"
