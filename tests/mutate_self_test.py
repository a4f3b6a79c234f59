"""Proves on a made-up tree that each operator makes the mutants that it should: tests/mutate.py --self-test."""
import glob
import os
import tempfile
import time

import mutate
import mutate_code
import mutate_rooms
import mutate_served

HEAD = "int ask(int low, int high);\n"
CODE = """
int between(int low, int high, const char *name)
{
    int room[4];
    assert(low < high);
    if (!name) return 1;
    for (int i = low; i < high; i++) {
        room[i] = low + i;
    }
    log_line(LOG_INFO, "%d < %d", low, high);
    return low > 3 && room[0] == ask(low, high) ? low : high;
}
"""
# {operator: the lines that it makes of CODE}
EXPECTED = {
    "delete": [";", ";"],
    "negate": ["if (!(!name)) return 1;", "return !(low > 3 && room[0] == ask(low, high)) ? low : high;"],
    "compare": ["for (int i = low; i <= high; i++) {", "return low >= 3 && room[0] == ask(low, high) ? low : high;",
                "return low > 3 && room[0] != ask(low, high) ? low : high;"],
    "bound": ["for (int i = low; i < (high) - 1; i++) {"],
    "index": ["room[(i) + 1] = low + i;", "return low > 3 && room[(0) + 1] == ask(low, high) ? low : high;"],
    "swap": ["return low > 3 && room[0] == ask(high, low) ? low : high;"],
    "constant": ["if (!name) return 0;", "return low > (3 + 1) && room[0] == ask(low, high) ? low : high;"],
    "arithmetic": ["room[i] = low - i;"],
    "logic": ["return low > 3 || room[0] == ask(low, high) ? low : high;"],
    "term": ["return low > 3 ? low : high;"],
}
# Code, and the operators that make nothing of it.
NOTHING = [
    ("void f(void) { mem_free(a); buf_free(&b); yaml_event_delete(&c); p_curl_easy_cleanup(d); }", mutate_code.OPERATORS),
    ("void f(void) { pthread_mutex_destroy(&a); sem_destroy(&b); __builtin_prefetch(c + 1); }", mutate_code.OPERATORS),
    ("int f(void) { struct c one = {0}, two[n] = {0}; return g(one, two, (struct c){0}); }", ["constant"]),
    ("int f(int a, int b) { return a < b ? a : b; }", ["compare"]),
    ("int f(int a) { int b = a; struct c *d = 0; (void)a; return b; }", ["delete"]),
    ("int f(int a) { if (a == 3) return 4; return 5; }", ["negate"]),
    ("int f(int a) { return g(a, a); }", ["swap"]),
    ("int f(void) { char text[256]; return 0 ? text[0] : '\\0'; }", ["bound", "arithmetic"]),
    ("#define TWO 2\nstatic const int table[] = {1, 2 < 3};\n", mutate_code.OPERATORS),
]
PATCHES = "# a note\n\nconfig/a.c: the sum is gone\n-room[i] =\n-    low + i;\n+room[i] = i;\n\nconfig/a.c:\n-no such text\n"


def tree_of(code, folder):
    """A tree of two files of which one has this code."""
    os.makedirs(os.path.join(folder, "config"), exist_ok=True)
    for name, text in (("a.c", code), ("ask.c", HEAD.replace(";", " { return low - high; }"))):
        with open(os.path.join(folder, "config", name), "w", encoding="utf-8") as file:
            file.write(text)
    return mutate_code.Tree(folder)


def mutants(code, operator=None):
    """{key: (old line, new line)} of some code."""
    with tempfile.TemporaryDirectory() as folder:
        found = tree_of(code, folder).mutants_of("config/a.c")
        return {m.key: m.shown()[1:] for m in found if not operator or m.key.split(":")[2] == operator}


def check_operators():
    for operator in mutate_code.OPERATORS:
        made = [new for _, new in mutants(CODE, operator).values()]
        assert made == EXPECTED[operator], f"{operator} makes {made}"
    for code, operators in NOTHING:
        for operator in operators:
            assert not mutants(code, operator), f"{operator} makes {mutants(code, operator)}"


def check_zeros():
    """A lone 0 in braces clears a struct, but is a value where an array has no stated size."""
    made = [new for _, new in mutants("int f(void) { return g((int[]){0}); }\n", "constant").values()]
    assert made == ["int f(void) { return g((int[]){(0 + 1)}); }"], made


def check_keys():
    """Keys stay when lines move and when other functions change; those of a changed function count on."""
    front = "/* a comment: if (x < 1) return; */\nint first(void)\n{\n    return 1;\n}\n"
    moved = front + CODE.replace("\n    int room", "\n\n    int room")
    before, after = mutants(CODE), mutants(moved)
    assert before == {key: edit for key, edit in after.items() if ":between:" in key}
    assert set(after) - set(before) == {"config/a.c:first:constant:0"}
    again = mutants("int f(int a) { return a + 1; }\nint f(long a) { return a + 2; }\n")
    assert {"config/a.c:f:constant:0", "config/a.c:f~2:constant:0"} <= set(again)


def check_patches():
    patches = mutate.patches_in(PATCHES)
    assert [patch[:2] for patch in patches] == [(3, "config/a.c"), (8, "config/a.c")]
    made = [mutate.patch_mutant("key", path, CODE, old, new) for _, path, old, new in patches]
    assert made[0].shown()[1:] == ("room[i] = low + i;", "room[i] = i;") and made[1] is None
    assert mutate.patch_mutant("key", "config/a.c", CODE, "low", "high") is None, "the place is not the only one"


def check_samples():
    with tempfile.TemporaryDirectory() as folder:
        tree = tree_of(CODE, folder)
        by_room = mutate.mutants_by_room(tree, ["config"], "c")
        some = [m.key for m in mutate.in_turn(mutate.sampled(by_room, 5, "1"))]
        assert len(some) == 5 and some == [m.key for m in mutate.in_turn(mutate.sampled(by_room, 5, "1"))]
        assert some != [m.key for m in mutate.in_turn(mutate.sampled(by_room, 5, "2"))]
        one = mutate.mutants_by_room(tree, ["config/a.c:between:swap:0"], "c")
        assert [m.key for m in mutate.in_turn(one)] == ["config/a.c:between:swap:0"]
        stale = mutate.notes_of({"config/a.c:between:swap:0": "fine", "config/a.c:gone:swap:0": "old"}, tree, [])
        assert len(stale) == 1 and "gone" in stale[0]


def check_tables():
    """Each suite judges the mutants of some room, and each row names what exists."""
    assert not mutate_rooms.unnamed(), mutate_rooms.unnamed()
    assert not mutate_rooms.gone(), mutate_rooms.gone()
    places = [*mutate_rooms.SUITES, *mutate_rooms.SERVED]
    empty = [place for place in places if not glob.glob(os.path.join(mutate_rooms.ROOT, place) + "*")]
    assert not empty, f"tests/mutate_rooms.py has rows for {empty}, which do not exist"


def check_ends():
    """A command that takes too long ends with all its processes, also with one in a session of its own."""
    with tempfile.TemporaryDirectory() as folder:
        alive = os.path.join(folder, "alive")
        beats = f"while true; do echo >>{alive}; sleep 0.02; done"
        code = mutate_served.run_command(["sh", "-c", f"setsid sh -c '{beats}' & sleep 60"], 4)
        size = os.path.getsize(alive)
        time.sleep(0.5)
        assert code == mutate_served.FAILED and 0 < size == os.path.getsize(alive), (code, size, os.path.getsize(alive))
    assert mutate_served.run_command(["sh", "-c", f"[ -n \"${mutate_served.MARK}\" ] && exit 3"], 60) == 3


def main():
    for check in (check_operators, check_zeros, check_keys, check_patches, check_samples, check_tables, check_ends):
        check()
    print(f"{len(EXPECTED)} operators make the mutants that they should; keys stay")
    return 0
