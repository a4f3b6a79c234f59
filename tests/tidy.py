"""Checks of the tree in addition to the compiler's: include direction, sizes, comments above prototypes, dead files,
docs.

`tests/tidy.py` checks its tree, prints a line per finding, and ends with exit code 1 if there is a finding.
`tests/tidy.py --self-test` checks on small fake trees that each rule can fail.
"""
import collections
import fnmatch
import os
import re
import sys
import tempfile

import house
import tidy_docs

# The rooms that each room may include, and by which header: the room's door. config is a leaf; engine/text does not
# know tensors. Rooms are named from the top of the tree. A header in a room that is not a door is private to the room.
DOORS = {
    "config": ["config.h", "json.h", "list.h", "name_index.h", "pace.h"],
    "kernels": ["kernels.h", "backend.h", "gpu_group.h", "dtype.h", "memory.h", "ops.h", "profile.h", "program.h", "sampling.h", "step.h"],
    "kernels/cpu": ["cpu.h"],
    "kernels/cpu/ops": [],
    "kernels/cpu/simd": [],
    "kernels/cpu/weights": [],
    "kernels/cpu/plain": [],
    "kernels/cuda": ["step.cuh"],
    "kernels/cuda/runtime": ["cuda.h", "device.cuh", "ptx.cuh", "ptx90.cuh", "runtime.cuh", "staging.cuh", "cublas.cuh", "nccl.cuh",
                             "orders.cuh", "ordered.cuh", "grid_barrier.cuh"],
    "kernels/cuda/rows": ["rows.cuh", "math.cuh"],
    "kernels/cuda/recurrent": ["recurrent.cuh", "states.cuh"],
    "kernels/cuda/low_rank": ["low_rank.cuh"],
    "kernels/cuda/gemm": ["gemm.cuh", "ops.cuh", "matrix.cuh", "format.cuh", "mainloop.cuh", "skinny.cuh", "grouped.cuh"],
    "kernels/cuda/experts": ["experts.cuh"],
    "kernels/cuda/wgmma": ["arrange.cuh", "launch.cuh", "wgmma.cuh"],
    "kernels/cuda/tcgen05": ["tcgen05.cuh"],
    "kernels/cuda/persistent": ["persistent.cuh"],
    "kernels/cuda/attention": ["attention.cuh", "kv.cuh", "kv_swap.cuh", "latent.cuh", "rope.cuh", "workspace.cuh", "kernel.cuh", "heads.cuh"],
    "kernels/cuda/wide_heads": ["wide_heads.cuh"],
    "kernels/cuda/sampling": ["sampling.cuh"],
    "engine/text": ["text.h"],
    "engine/text/tokenizer": [],
    "engine/text/template": [],
    "engine/files/tensors": ["gguf.h", "mapping.h", "safetensors.h", "weights.h"],
    "engine/files": ["model_file.h"],
    "engine/files/text": ["folder_text.h"],
    "engine/grammar/build": ["build.h", "limits.h", "network.h"],
    "engine/grammar/read": ["read.h"],
    "engine/grammar/run": ["run.h"],
    "engine/grammar/schema": ["schema.h"],
    "engine/grammar": ["grammar.h"],
    "engine/memory": ["memory.h", "device.h"],
    "engine/models/families": ["family.h", "roles.h"],
    "engine/models": ["dummy.h", "model.h"],
    "engine/models/load": ["load.h"],
    "engine/quantise": ["quantise.h"],
    "engine/convert": [],
    "engine/adapters": ["adapters.h"],
    "engine/sampling": ["sampling.h"],
    "engine/peers": ["peers.h"],
    "engine/ranks": ["ranks.h"],
    "engine/config": ["config.h", "head.h", "model_config.h"],
    "engine": ["engine.h"],
    "scheduler/kv": ["block_pool.h", "prefix_cache.h", "swap.h", "host_cache.h", "window_pool.h", "state_pool.h", "event_ring.h", "checkpoints.h"],
    "scheduler/store": ["prefix_store.h"],
    "scheduler/draft": ["draft.h"],
    "scheduler/beams": ["beams.h"],
    "scheduler/sequence": ["generation.h", "sequence.h"],
    "scheduler/plan": ["plan.h", "step_cost.h"],
    "scheduler": ["scheduler.h"],
    "server/json": ["json.h"],
    "server/message": ["message.h"],
    "server/http": ["http.h"],
    "server/page": ["page.h"],
    "server/keys": ["keys.h"],
    "server/kv_events": ["kv_events.h"],
    "server/traces": ["traces.h"],
    "server/receipts": ["receipts.h"],
    "server/cassette": ["cassette.h"],
    "server/openai": ["openai.h"],
    "server/ollama": ["ollama.h"],
    "server/llama": ["llama.h"],
    "server/anthropic": ["anthropic.h"],
    "server/responses": ["responses.h"],
    "server/decisions": ["decisions.h"],
    "server/apis": ["apis.h"],
    "server/generation": ["grammar_store.h", "job.h", "prompt.h", "stop_matcher.h"],
    "server/options": ["options.h", "table.h"],
    "server/fingerprint": ["fingerprint.h", "hash.h"],
    "server/promises": ["promises.h"],
    "server/hub": ["hub.h"],
    "server/app": ["adapters.h", "app.h", "lanes.h", "metrics.h"],
    "server/app/promised": ["promised.h"],
    "server/endpoints": ["endpoints.h"],
    "server/commands": ["commands.h"],
    "server/client": [],
    "server/offline": [],
    "server/manual": ["manual.h"],
    "server": [],
    "bench/command": [],
}
CPU = {"config", "kernels", "kernels/cpu"}
CUDA = {"config", "kernels", "kernels/cuda/runtime"}
ENGINE = {"config", "kernels", "engine/text", "engine/grammar", "engine/config"}
SEQUENCE_PARTS = {"engine", "scheduler/kv", "scheduler/draft", "scheduler/beams"}
SCHEDULER = ENGINE | {"engine", "scheduler"}
SERVER = SCHEDULER | {"scheduler/store", "server/json", "server/http", "server/keys", "server/kv_events", "server/traces", "server/fingerprint", "server/receipts", "server/cassette", "server/message", "server/openai", "server/ollama", "server/llama", "server/anthropic",
                      "server/responses", "server/decisions", "server/apis",
                      "server/options"}
ABOVE_APP = SERVER | {"server/app", "server/app/promised", "server/promises"}
MAY_INCLUDE = {
    "config": set(),
    "kernels": {"config"},
    "kernels/cpu": {"config", "kernels"},
    "kernels/cpu/ops": CPU,
    "kernels/cpu/simd": CPU,
    "kernels/cpu/weights": CPU,
    "kernels/cpu/plain": CPU,
    "kernels/cuda/runtime": {"config", "kernels"},
    "kernels/cuda/rows": CUDA,
    "kernels/cuda/recurrent": CUDA,
    "kernels/cuda/low_rank": CUDA | {"kernels/cuda/rows"},
    "kernels/cuda/gemm": CUDA | {"kernels/cuda/rows", "kernels/cuda/low_rank"},
    "kernels/cuda/experts": CUDA | {"kernels/cuda/rows", "kernels/cuda/gemm"},
    "kernels/cuda/wgmma": CUDA | {"kernels/cuda/rows", "kernels/cuda/gemm", "kernels/cuda/attention"},
    "kernels/cuda/tcgen05": CUDA | {"kernels/cuda/rows", "kernels/cuda/gemm", "kernels/cuda/wgmma"},
    "kernels/cuda/attention": CUDA | {"kernels/cuda"},
    "kernels/cuda/wide_heads": CUDA | {"kernels/cuda/attention"},
    "kernels/cuda/sampling": CUDA,
    "kernels/cuda/persistent": CUDA | {"kernels/cuda/rows", "kernels/cuda/gemm", "kernels/cuda/attention"},
    "kernels/cuda": CUDA | {"kernels/cuda/rows", "kernels/cuda/gemm", "kernels/cuda/experts", "kernels/cuda/attention",
                           "kernels/cuda/recurrent", "kernels/cuda/low_rank", "kernels/cuda/sampling",
                           "kernels/cuda/persistent", "kernels/cuda/wgmma", "kernels/cuda/tcgen05",
                           "kernels/cuda/wide_heads"},
    "engine/config": {"config", "kernels"},
    "engine/text": {"config"},
    "engine/text/tokenizer": {"config", "engine/text"},
    "engine/text/template": {"config", "engine/text"},
    "engine/files/tensors": {"config", "kernels"},
    "engine/files": ENGINE | {"engine/files/tensors", "engine/files/text"},
    "engine/files/text": {"config", "engine/text"},
    "engine/grammar/build": {"config"},
    "engine/grammar/read": {"config", "engine/grammar/build"},
    "engine/grammar/run": {"config", "engine/grammar/build"},
    "engine/grammar/schema": {"config", "engine/grammar/build", "engine/grammar/read", "engine/grammar/run"},
    "engine/grammar": {"config", "engine/grammar/build", "engine/grammar/read", "engine/grammar/run", "engine/grammar/schema"},
    "engine/memory": ENGINE,
    "engine/sampling": ENGINE,
    "engine/models/families": ENGINE,
    "engine/quantise": ENGINE | {"engine/files"},
    "engine/models": ENGINE | {"engine/files", "engine/files/tensors", "engine/models/families"},
    "engine/models/load": ENGINE | {"engine/files/tensors", "engine/memory", "engine/models", "engine/models/families", "engine/quantise"},
    "engine/adapters": ENGINE | {"engine/files/tensors", "engine/models", "engine/models/families"},
    "engine/convert": ENGINE | {"engine", "engine/files", "engine/files/text", "engine/models", "engine/models/families", "engine/models/load", "engine/quantise"},
    "engine/peers": {"config"},
    "engine/ranks": ENGINE | {"engine/files/tensors", "engine/models", "engine/models/load", "engine/peers"},
    "engine": ENGINE | {"engine/ranks", "engine/peers", "engine/adapters", "engine/files", "engine/memory", "engine/models", "engine/models/load", "engine/quantise", "engine/sampling"},
    "scheduler/kv": ENGINE | {"engine"},
    "scheduler/store": ENGINE | {"engine", "scheduler/kv"},
    "scheduler/draft": {"config", "kernels"},
    "scheduler/beams": {"config", "kernels"},
    "scheduler/sequence": ENGINE | SEQUENCE_PARTS,
    "scheduler/plan": ENGINE | SEQUENCE_PARTS | {"scheduler/sequence"},
    "scheduler": SCHEDULER | SEQUENCE_PARTS | {"scheduler/sequence", "scheduler/plan", "scheduler/store"},
    "server/json": {"config"},
    "server/message": {"config", "server/json"},
    "server/http": {"config"},
    "server/page": {"config", "server/http"},
    "server/keys": {"config", "scheduler"},
    "server/kv_events": ENGINE | {"engine", "scheduler/kv", "server/json"},
    "server/traces": {"config", "server/json"},
    "server/receipts": {"config", "server/fingerprint", "server/json"},
    "server/cassette": {"config", "server/fingerprint", "server/json", "server/receipts"},
    "server/openai": SCHEDULER | {"server/json", "server/message"},
    "server/ollama": SCHEDULER | {"server/json", "server/message", "server/openai"},
    "server/llama": SCHEDULER | {"server/json", "server/message", "server/openai"},
    "server/anthropic": SCHEDULER | {"server/json", "server/message", "server/openai"},
    "server/apis": SCHEDULER | {"server/json", "server/message", "server/openai", "server/ollama", "server/llama",
                               "server/anthropic", "server/responses", "server/decisions"},
    "server/responses": SCHEDULER | {"server/json", "server/message", "server/openai"},
    "server/decisions": SCHEDULER | {"server/json", "server/message", "server/openai", "server/responses"},
    "server/options": SCHEDULER | {"server/http"},
    "server/fingerprint": SCHEDULER | {"server/http", "server/json", "server/options"},
    "server/promises": {"config"},
    "server/hub": {"config"},
    "server/app": SERVER,
    "server/app/promised": ABOVE_APP,
    "server/generation": ABOVE_APP,
    "server/endpoints": ABOVE_APP | {"server/generation", "server/page"},
    "server/commands": ABOVE_APP | {"engine/peers", "server/generation", "server/endpoints", "server/hub"},
    "server": {"config", "server/commands"},
    "server/client": {"config", "server/options", "server/commands"},
    "server/offline": ABOVE_APP | {"server/generation", "server/commands"},
    "server/manual": {"config", "server/options"},
    "bench/command": ABOVE_APP | {"server/commands"},
}
# The headers in which each prototype must have a comment: those that other folders or the program's main file include.
COMMENTED_HEADERS = {
    "config/config.h", "config/json.h", "config/list.h", "config/name_index.h", "kernels/kernels.h", "engine/text/text.h",
    "engine/grammar/grammar.h", "engine/grammar/run/run.h", "engine/engine.h",
    "scheduler/batch.h", "scheduler/beams/beams.h", "scheduler/draft/draft.h", "scheduler/engine_port.h",
    "scheduler/inflight.h", "scheduler/internal.h", "scheduler/kv/block_pool.h", "scheduler/kv/event_ring.h", "scheduler/kv/host_cache.h",
    "scheduler/kv/prefix_cache.h", "scheduler/kv/state_pool.h", "scheduler/kv/swap.h", "scheduler/kv/window_pool.h", "scheduler/plan/internal.h",
    "scheduler/plan/plan.h", "scheduler/plan/step_cost.h", "scheduler/scheduler.h", "scheduler/sequence/generation.h",
    "scheduler/sequence/sequence.h", "scheduler/speculate.h",
    "server/http/http.h", "server/json/json.h", "server/message/message.h", "server/openai/openai.h",
}
# The folders that may include each library.
LIBRARIES = {
    r"uv\.h": ["server/"],
    r"microhttpd\.h": ["server/http/"],
    r"cjson/.*": [],
    r"curl/.*": ["server/hub/", "server/traces/"],
    r"openssl/.*": ["server/hub/"],
    r"yaml\.h": ["server/options/", "server/keys/"],
    r"sodium\.h": ["server/fingerprint/", "server/keys/", "server/receipts/"],
    r"hiredis/.*": ["scheduler/store/"],
    r"zmq\.h": ["server/kv_events/"],
    r"msgpack\.h": ["server/kv_events/"],
    r"systemd/.*": ["server/app/"],
    r"histedit\.h": ["server/commands/"],
    r"pcre2\.h": ["engine/text/tokenizer/"],
    r"utf8proc\.h": ["engine/"],
    r"xxhash\.h": ["engine/models/", "engine/ranks/", "scheduler/", "server/"],
    r"check\.h": [],
    r"(cuda|cublas|nv).*": ["kernels/cuda/", "bench/gpu/"],
}
# The rooms that read clients' JSON: they read a value by json_text, json_number and the like, which check its type, and
# never by a field of the union in struct json.
READS_JSON = ("engine/grammar/schema/", "server/generation/", "server/json/", "server/message/",
              "server/openai/")
UNION_FIELD = r"->(string|integer|is_integer|boolean|n_children)\b"
# These time the internals of rooms: they may include them, as tests may.
TIMES_INTERNALS = ("bench/gpu/", "bench/steps.c")
MAX_FUNCTION, USUAL_FUNCTION, USUAL_SHARE = 70, 45, 0.9
MAX_FILE, MAX_TEST_FILE, MAX_WIDTH = 500, 800, 100

# Files that may be longer or wider, each with its reason. An entry that is no longer needed is a finding itself.
LONG_FILES = {
    "server/openai/openai.h": "the door of the room that all APIs include; adapters came as the last part",
    "server/endpoints/routes.c": "the table of all routes grows with them",
}
WIDE_FILES = {}

# Product folders with more than house.MAX_FOLDER source files in the folder itself, and product files under
# house.SHORT_FILE lines, each with its reason. Here too an entry that is no longer needed is a finding.
CROWDED = {}
A_SET = "one path, compiled for one instruction set: the build goes by the file's name"
A_CACHE = "the kernels of one type of cache: each takes long to compile, so they are compiled side by side"
A_TYPE = "the kernels of one type of activations: each takes long to compile, so they are compiled side by side"
A_DOOR = "functions that one file offers to the others of its folder"
A_ROOM = "the few functions that a room offers to others"
# Folders whose files may be short.
SHORT_FOLDERS = {"engine/models/families": "a model family is data: its tensors and a few words"}
SHORT_FILES = {
    "config/build.c": "is the only file that includes the header that is made anew for each commit",
    "engine/grammar/build/limits.h": "the part of build/ that grammar.h passes on to other rooms",
    "engine/grammar/read/read.h": A_ROOM,
    "server/anthropic/anthropic.h": A_ROOM,
    "server/responses/responses.h": A_ROOM,
    "server/decisions/decisions.h": A_ROOM,
    "server/llama/internal.h": A_DOOR,
    "engine/grammar/schema/schema.h": A_ROOM,
    "engine/models/folder_names.h": A_DOOR,
    "engine/models/load/weight_cache.h": A_DOOR,
    "server/keys/internal.h": A_DOOR,
    "server/receipts/internal.h": A_DOOR,
    "server/offline/offline.h": A_DOOR,
    "kernels/backend.c": "the sentence that both backends say: no backend's own",
    "kernels/cpu/simd/path_amx.c": A_SET,
    "kernels/cpu/simd/path_avx2.c": A_SET,
    "kernels/cpu/simd/path_avx512vnni.c": A_SET,
    "kernels/cpu/simd/path_avxvnni.c": A_SET,
    "kernels/cpu/simd/peak.h": A_DOOR,
    "kernels/cuda/tcgen05/absent.cu": "replaces the kernel of sm_100 if it is not built",
    "kernels/cuda/generation.cu": "the table of GPU generations: a row for each",
    "kernels/cuda/generation.cuh": A_DOOR,
    "kernels/cuda/tcgen05/tcgen05.cuh": A_DOOR,
    "kernels/cuda/wgmma/wgmma.cuh": A_DOOR,
    "kernels/cuda/attention/bf16.cu": A_CACHE,
    "kernels/cuda/attention/e4m3.cu": A_CACHE,
    "kernels/cuda/attention/f16.cu": A_CACHE,
    "kernels/cuda/attention/kv_swap.cuh": A_DOOR,
    "kernels/cuda/persistent/bf16.cu": A_TYPE,
    "kernels/cuda/persistent/f16.cu": A_TYPE,
    "kernels/cuda/runtime/cublas.cuh": A_DOOR,
    "kernels/cuda/runtime/nvtx.cu": "is the only file that includes NVTX, which may be absent",
    "kernels/cuda/timing.cuh": A_DOOR,
    "kernels/cuda/wide_heads/bf16.cu": A_CACHE,
    "kernels/cuda/wide_heads/f16.cu": A_CACHE,
    "kernels/cuda/wide_heads/wide_heads.cuh": A_DOOR,
}

EMULATED_HEADERS = "tests/cuda_emu/include/"
SKIPPED_FOLDERS = {".git", ".pytest_cache", "__pycache__"}
SKIPPED_PATHS = {".venv", "build", "models"}
UNREAD = "tests/fuzz/corpus/"
CODE = (".c", ".h", ".inc", ".cu", ".cuh", ".cpp")
INCLUDED = (".h", ".inc", ".cuh")


class Tree:
    """The files of one tree, and the findings."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self.lines = {}
        self.docs = {}  # *.md and the Makefile
        self.paths = set()  # of all files
        for folder, folders, names in os.walk(root):
            here = os.path.relpath(folder, root)
            folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS
                                and os.path.normpath(os.path.join(here, f)) not in SKIPPED_PATHS)
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                self.paths.add(path)
                if path.startswith(UNREAD):
                    continue
                if name.endswith(".md") or path == "Makefile":
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        self.docs[path] = file.read().split("\n")
                if path.endswith(CODE + (".py", ".sh")) or name == "CMakeLists.txt":
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        self.lines[path] = file.read().split("\n")

    def find(self, path, number, text):
        self.findings.append(f"{path}:{number}: {text}")

    def code(self):
        return {path: lines for path, lines in self.lines.items() if path.endswith(CODE)}


def folder_of(path):
    """The folder of MAY_INCLUDE that a path belongs to, or None for tests and others."""
    names = [name for name in MAY_INCLUDE if path.startswith(name + "/")]
    return max(names, key=len) if names else None


def includes_of(lines):
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match[1] == '"', match[2]


def resolve(tree, path, name):
    """Returns the path in the tree of a quoted include, which is named from the root or from the folder of its file; or
    None."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    return next((p for p in (name, beside, "tests/" + name) if p in tree.lines), None)


def resolve_system(tree, name):
    """Returns the tree's header that replaces a system's, or None: the CUDA emulation has a folder of them."""
    path = EMULATED_HEADERS + name
    return path if path in tree.lines else None


def is_door(target, room):
    return target[len(room) + 1:] in DOORS[room]


def check_project_include(tree, path, number, target):
    source, wanted = folder_of(path), folder_of(target)
    if path.startswith("tests/"):
        return
    if target.startswith("tests/"):
        tree.find(path, number, f"{target} belongs to the tests")
    elif source and wanted != source and wanted not in MAY_INCLUDE[source]:
        tree.find(path, number, f"{source} may not include {target}: includes point one way")
    elif source != wanted and not (wanted and is_door(target, wanted)) and not path.startswith(TIMES_INTERNALS):
        tree.find(path, number, f"{target} is internal to {wanted}")


def check_library_include(tree, path, number, name):
    if path.startswith("tests/"):
        return
    for pattern, folders in LIBRARIES.items():
        if re.fullmatch(pattern, name) and not path.startswith(tuple(folders) or "\0"):
            tree.find(path, number, f"<{name}> may only be included in {', '.join(folders) or 'tests'}")


def check_includes(tree):
    included = set()
    for path, lines in tree.code().items():
        for number, quoted, name in includes_of(lines):
            target = resolve(tree, path, name) if quoted else None
            if not quoted and resolve_system(tree, name):
                included.add(resolve_system(tree, name))
            if target:
                included.add(target)
                check_project_include(tree, path, number, target)
            elif not quoted:
                check_library_include(tree, path, number, name)
            if name.startswith("cjson/") and path.endswith(".c") and not any("cJSON_" in s for s in lines):
                tree.find(path, number, "cJSON is included, but no JSON is read or written here")
    for path in tree.code():
        if path.endswith(INCLUDED) and path not in included:
            tree.find(path, 1, "no file includes this header")


def check_json_reads(tree):
    for path, lines in tree.code().items():
        for number, line in enumerate(lines, 1):
            if path.startswith(READS_JSON) and re.search(UNION_FIELD, line):
                tree.find(path, number, "reads a field of a JSON value without its type: use json_text, json_number and the like")


def functions_of(lines):
    """Yields (first line, count of lines) of each function body: from a signature in column 0 to a brace in column 0."""
    start, opened = None, False
    for number, line in enumerate(lines, 1):
        if start is None:
            if re.match(r"[A-Za-z_][^=;{]*\(", line) and not line.startswith("typedef"):
                start, opened = number, False
        if start is None:
            continue
        opened = opened or "{" in line
        if line.startswith("}"):
            yield start, number - start + 1
            start = None
        elif not opened and line.rstrip().endswith(";"):
            start = None


def check_functions(tree):
    """Returns the lengths of all functions."""
    lengths = []
    for path, lines in tree.code().items():
        for number, length in functions_of(lines):
            lengths.append(length)
            if length > MAX_FUNCTION:
                tree.find(path, number, f"a function of {length} lines; the limit is {MAX_FUNCTION}")
    share = sum(length < USUAL_FUNCTION for length in lengths) / len(lengths) if lengths else 1
    if share < USUAL_SHARE:
        tree.find("tree", 0, f"only {share:.0%} of the functions are under {USUAL_FUNCTION} lines")
    return lengths


def check_sizes(tree):
    for path, lines in tree.lines.items():
        most = MAX_TEST_FILE if path.startswith("tests/") else MAX_FILE
        length = len(lines) - (lines[-1] == "")
        if length > most and path not in LONG_FILES:
            tree.find(path, length, f"{length} lines; the limit is {most}, or list it with its reason")
        if length <= most and path in LONG_FILES:
            tree.find(path, length, "is listed as long, but is not: take it off the list")
    for path, lines in tree.code().items():
        wide = [number for number, line in enumerate(lines, 1) if len(line) > MAX_WIDTH]
        if wide and path not in WIDE_FILES:
            for number in wide:
                tree.find(path, number, f"{len(lines[number - 1])} columns; the limit is {MAX_WIDTH}")
        if not wide and path in WIDE_FILES:
            tree.find(path, 1, "is listed as wide, but is not: take it off the list")
    for path in set(LONG_FILES) | set(WIDE_FILES):
        if path not in tree.lines:
            tree.find(path, 0, "is listed, but does not exist")


def prototypes_of(lines):
    """Yields the first line of each function prototype in a header."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"[A-Za-z_][^=;{}]*\(", line):
            start = number
        if start and "{" in line:
            start = None
        elif start and line.rstrip().endswith(";"):
            yield start
            start = None
        elif start and re.search(r";\s*/\*.*\*/\s*$", line):
            yield start
            start = None


def check_comments(tree):
    """Each prototype is in a paragraph that begins with a comment, or has one after it on its line."""
    for path, lines in tree.code().items():
        if path not in COMMENTED_HEADERS:
            continue
        for number in prototypes_of(lines):
            top = number
            while top > 1 and lines[top - 2].strip():
                top -= 1
            if not any("/*" in line or "*/" in line for line in lines[top - 1:number]):
                tree.find(path, number, "a public prototype without a comment above it")


def built_patterns(tree):
    """The patterns of the sources that the CMakeLists.txt name, their folders filled in."""
    text = "\n".join("\n".join(lines) for path, lines in tree.lines.items() if path.endswith("CMakeLists.txt"))
    folders = re.findall(r"^penstock_library\(\w+ ([\w/]+)", text, re.M)
    for pattern in re.findall(r"[\w${}/*.]+\.(?:c|cu|cpp)\b", text):
        pattern = pattern.replace("${CMAKE_SOURCE_DIR}/", "")
        if "${folder}" in pattern:
            yield from (pattern.replace("${folder}", folder) for folder in folders)
        else:
            yield re.sub(r"\$\{\w+\}", "*", pattern)


def check_settings(tree):
    """engine/ and kernels/ do not know flags: their messages name a setting in braces, and the setting has an option."""
    table = "\n".join(tree.lines.get("server/options/table.c", []))
    options = {f for name in re.findall(r'^    \{"([a-z][\w-]*)", ', table, re.M) for f in (name, "no-" + name)}
    for path, lines in tree.code().items():
        for number, line in enumerate(lines, 1):
            texts = re.findall(r'"(?:[^"\\]|\\.)*"', line) if path.startswith(("engine/", "kernels/")) else []
            for flag in (flag for text in texts for flag in re.findall(r"--(%s|[a-z][\w-]*)", text)):
                tree.find(path, number, f"names the flag --{flag}: write {{{flag}}}, and the commands print the flag")
            for name in (name for text in texts for name in re.findall(r"\{([a-z]+(?:-[a-z]+)*)\}", text)):
                if name not in options:
                    tree.find(path, number, f"names the setting {{{name}}}, which is not an option")


def check_built(tree):
    patterns = list(built_patterns(tree))
    for path in tree.code():
        if path.endswith(INCLUDED):
            continue
        # fnmatch lets '*' cross folders, a glob does not.
        if not any(fnmatch.fnmatchcase(path, p) and path.count("/") == p.count("/") for p in patterns):
            tree.find(path, 1, "CMakeLists.txt does not build this file")


def product_of(tree):
    """The product's source files and their lines, as house.py counts them."""
    folders = tuple(folder + "/" for folder in house.PRODUCT)
    return {path: len(lines) - (lines[-1] == "") for path, lines in tree.lines.items()
            if path.startswith(folders) and path.endswith(house.CODE)}


def check_listed(tree, found, listed, what):
    """`found` {path: (line, words)} breaks a rule: each must be in `listed`, and `listed` must have no others."""
    for path, (number, words) in found.items():
        if path not in listed:
            tree.find(path, number, f"{words}, or list it with its reason")
    for path in sorted(set(listed) - set(found)):
        tree.find(path, 0, f"is listed as {what}, but is not: take it off the list")


def check_crowded(tree):
    folders = collections.Counter(os.path.dirname(path) for path in product_of(tree))
    found = {folder: (0, f"{n} source files; the limit is {house.MAX_FOLDER}")
             for folder, n in folders.items() if n > house.MAX_FOLDER}
    check_listed(tree, found, CROWDED, "crowded")


def check_short_files(tree):
    found = {path: (n, f"{n} lines; {house.SHORT_FILE} is the least")
             for path, n in product_of(tree).items()
             if n < house.SHORT_FILE and os.path.dirname(path) not in SHORT_FOLDERS}
    check_listed(tree, found, SHORT_FILES, "short")


def check_house(tree):
    """Checks how the product is divided into folders and files."""
    check_crowded(tree)
    check_short_files(tree)


def one_caller_words(root):
    """Returns the share of small static functions with one caller, which is reported and is not a finding."""
    share = house.one_caller_figures(house.House(root))["share"]
    return f"{share:.1%} of static functions small and with one caller"


def check(root):
    tree = Tree(root)
    check_includes(tree)
    check_json_reads(tree)
    check_settings(tree)
    lengths = check_functions(tree)
    check_sizes(tree)
    check_comments(tree)
    check_built(tree)
    return tree, lengths


# ---- self-test ----------------------------------------------------------------------------------------------

GOOD = {
    "CMakeLists.txt": "penstock_library(config config)\npenstock_library(server server)\n"
                      "penstock_library(engine_files engine/files)\n"
                      "file(GLOB sources ${folder}/*.c)\nfile(GLOB suites tests/test_*.c)\n",
    "config/config.h": "/* Adds. */\nint add(int a, int b);\nint sub(int a,\n        int b);\n",
    "config/add.c": '#include "config/config.h"\n\nint add(int a, int b) {\n    return a + b;\n}\n',
    "server/app.h": "/* Serves. */\nvoid serve(void);\n",
    "server/app.c": '#include <uv.h>\n\n#include "config/config.h"\n#include "server/app.h"\n',
    "tests/test_serve.c": '#include <check.h>\n#include "server/app.h"\n',
}
LONG = "int f(void) {\n" + "    g();\n" * 69 + "}\n"
MIDDLE = "int f(void) {\n" + "    g();\n" * 44 + "}\n"
# Files to add to the good tree, and words of the one finding that they must cause.
BAD = [
    ({"config/b.c": '#include "server/app.h"\n'}, "config may not include server/app.h"),
    ({"server/b.c": '#include "config/internal.h"\n', "config/internal.h": ""}, "is internal to config"),
    ({"config/b.c": "#include <uv.h>\n"}, "<uv.h> may only be included in server/"),
    ({"server/b.c": "#include <check.h>\n"}, "<check.h> may only be included in tests"),
    ({"config/b.c": '#include "tests/help.h"\n', "tests/help.h": ""}, "belongs to the tests"),
    ({"tests/test_b.c": "#include <cjson/cJSON.h>\n"}, "no JSON is read or written"),
    ({"server/json/b.c": "int n = value->n_children;\n", "CMakeLists.txt": GOOD["CMakeLists.txt"]
      + "penstock_library(json server/json)\n"}, "without its type"),
    ({"kernels/b.c": 'const char *a = "lower --max-num-seqs";\n', "CMakeLists.txt": GOOD["CMakeLists.txt"]
      + "penstock_library(kernels kernels)\n"}, "names the flag --max-num-seqs"),
    ({"kernels/b.c": 'const char *a = "{max-seqs}";\n', "CMakeLists.txt": GOOD["CMakeLists.txt"]
      + "penstock_library(kernels kernels)\n"}, "names the setting {max-seqs}, which is not an option"),
    ({"config/lonely.h": ""}, "no file includes this header"),
    ({"config/lonely.inc": ""}, "no file includes this header"),
    ({"config/sub/b.c": ""}, "does not build this file"),
    ({"tests/helper.c": ""}, "does not build this file"),
    ({"config/b.c": LONG + "int h(void) {\n}\n" * 20}, "a function of 71 lines"),
    ({"config/b.c": "static int f(int a,\n             int b)\n{\n" + "    g();\n" * 68 + "}\n"
      + "int h(void) {\n}\n" * 20}, "a function of 72 lines"),
    ({"config/b.c": MIDDLE + "int h(void) {\n}\n" * 3}, "only 80% of the functions"),
    ({"config/b.c": "int a;\n" * 501}, "501 lines"),
    ({"tests/test_b.c": "int a;\n" * 801}, "801 lines"),
    ({"config/b.c": "//" + "x" * 99 + "\n"}, "101 columns"),
    ({"config/config.h": "/* Adds. */\nint add(int a, int b);\n\nint sub(int a, int b);\n"}, "without a comment"),
    ({"config/config.h": "/* Adds. */\nint add(int a, int b);\n\nint sub(int a,\n        int b);\n"},
     "config/config.h:4: a public prototype"),
]


# Files, the lists of crowded and short ones, and words of the one finding that check_house must have; "": no finding.
LINES = "int a;\n" * 30
HOUSES = [
    ({f"server/b{i}.c": LINES for i in range(22)}, {}, {}, ""),
    ({f"server/b{i}.c": LINES for i in range(23)}, {}, {}, "server:0: 23 source files; the limit is 22"),
    ({f"server/b{i}.c": LINES for i in range(23)}, {"server": "why"}, {}, ""),
    ({f"server/{i % 2}/b{i}.cu": LINES for i in range(44)}, {}, {}, ""),
    ({f"server/{i % 2}/b{i}.cuh": LINES for i in range(45)}, {}, {}, "server/0:0: 23 source files"),
    ({f"tests/b{i}.c": LINES for i in range(23)}, {}, {}, ""),
    ({f"server/b{i}.md": LINES for i in range(23)}, {}, {}, ""),
    ({f"server/b{i}.c": LINES for i in range(22)}, {"server": "why"}, {}, "server:0: is listed as crowded"),
    ({"server/b.c": LINES}, {"engine": "why"}, {}, "engine:0: is listed as crowded, but is not"),
    ({"server/b.h": LINES[7:]}, {}, {}, "server/b.h:29: 29 lines; 30 is the least"),
    ({"server/b.h": LINES[7:]}, {}, {"server/b.h": "why"}, ""),
    ({"server/b.h": LINES}, {}, {"server/b.h": "why"}, "is listed as short, but is not"),
    ({"server/b.h": LINES}, {}, {"server/gone.h": "why"}, "server/gone.h:0: is listed as short, but is not"),
    ({"bench/command/b.c": ""}, {}, {}, "bench/command/b.c:0: 0 lines"),
    ({"bench/gpu/b.cu": "", "tests/b.c": "", "server/b.py": ""}, {}, {}, ""),
]


def make_tree(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


def house_self_test():
    for files, crowded, short, words in HOUSES:
        for known, listed in ((CROWDED, crowded), (SHORT_FILES, short)):
            known.clear()
            known.update(listed)
        with tempfile.TemporaryDirectory() as root:
            make_tree(root, files)
            tree = Tree(root)
        check_house(tree)
        assert len(tree.findings) == bool(words) and words in "".join(tree.findings), (files, words, tree.findings)


def findings_in_docs(files):
    with tempfile.TemporaryDirectory() as root:
        make_tree(root, files)
        tree = Tree(root)
    tidy_docs.check(tree)
    return tree.findings


def findings_of(files):
    with tempfile.TemporaryDirectory() as root:
        make_tree(root, files)
        return check(root)[0].findings


def self_test():
    LONG_FILES.clear()
    WIDE_FILES.clear()
    good = dict(GOOD)
    good["config/b.c"] = LONG.replace("    g();\n", "", 1) + "int h(void) {\n}\n" * 20 + "int a = f(\n    1);\n"
    good["config/c.c"] = "//" + "\u00e9" * 98 + "\n" + "int a;\n" * 499
    assert findings_of(good) == [], findings_of(good)
    for files, words in BAD:
        findings = findings_of({**GOOD, **files})
        assert len(findings) == 1 and words in findings[0], (words, findings)
    LONG_FILES["config/add.c"] = WIDE_FILES["gone.c"] = "for the self-test"
    findings = findings_of(GOOD)
    assert len(findings) == 2 and "take it off" in findings[0] and "does not exist" in findings[1], findings
    house_self_test()
    tidy_docs.self_test(findings_in_docs)
    print(f"tidy: self-test of {len(BAD) + len(HOUSES) + len(tidy_docs.CASES) + 4} trees passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    tree, lengths = check(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    check_house(tree)
    tidy_docs.check(tree)
    for finding in tree.findings:
        print(finding)
    share = sum(length < USUAL_FUNCTION for length in lengths) / max(len(lengths), 1)
    print(f"{len(tree.code())} files, {len(lengths)} functions, {share:.1%} under {USUAL_FUNCTION} lines, "
          f"longest {max(lengths, default=0)}, {one_caller_words(tree.root)}, {len(tree.findings)} findings")
    return 1 if tree.findings else 0


if __name__ == "__main__":
    sys.exit(main())
