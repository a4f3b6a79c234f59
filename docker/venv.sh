#!/bin/sh
# Makes .venv with the pinned packages of tests/requirements.txt. It is made anew when that file or its Python changes.
set -eu
cd "$(dirname "$0")/.."

wanted=$(sha256sum <tests/requirements.txt)
if [ "$(cat .venv/.made_from 2>/dev/null || :)" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi
echo "venv.sh: making .venv from tests/requirements.txt"
rm -rf .venv
python3 -m venv .venv
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -r tests/requirements.txt
.venv/bin/python -m pip check -q || {
    echo "venv.sh: tests/requirements.txt does not hold all that its packages need" >&2
    exit 1
}
echo "$wanted" >.venv/.made_from
