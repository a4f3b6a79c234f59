"""docker/Dockerfile.cpu and Dockerfile.cuda, read and not built. soak_images.py builds them (`make soak`)."""
import json
import re

import pytest
from conftest import ROOT, run

FILES = {name: ROOT / f"docker/Dockerfile.{name}" for name in ("cpu", "cuda")}


def instructions(name):
    """[(instruction, its argument)] without comments; continued lines are one."""
    text = re.sub(r"^#.*\n", "", FILES[name].read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(" ", 1)) for line in re.sub(r" +", " ", text).splitlines() if line]


def last_stage(name):
    lines = instructions(name)
    return lines[max(i for i, (word, _) in enumerate(lines) if word == "FROM"):]


def packages_of(lines):
    """The packages that the lines install with apt."""
    return set(" ".join(re.findall(r"--no-install-recommends ([^&]+)", " ".join(text for _, text in lines))).split())


@pytest.mark.parametrize("name", FILES)
def test_stages_begin_at_build_arguments_and_nothing_is_fetched_by_its_address(name):
    lines = instructions(name)
    arguments = dict(text.split("=", 1) for word, text in lines if word == "ARG")
    bases = [re.fullmatch(r"\$\{(\w+)\}( AS \w+)?", text) for word, text in lines if word == "FROM"]
    assert all(bases) and [base[1] for base in bases] == {"cpu": ["BASE"] * 2, "cuda": ["TOOLKIT", "BASE", "BASE"]}[name]
    assert all(re.search(r":[\w.-]*\d", arguments[base[1]]) for base in bases), arguments
    assert [text for word, text in lines if word == "ADD" or re.search(r"https?://|curl |wget ", text)] == []
    sets = re.findall(r"docker/setup\.sh ?([a-z ]*)", " ".join(text for word, text in lines if word == "RUN"))
    assert sets and all(f"\n    {one}) " in (ROOT / "docker/setup.sh").read_text() for one in " ".join(sets).split())


@pytest.mark.parametrize("name", FILES)
def test_an_image_has_a_user_a_health_check_and_programs_without_a_shell(name):
    found = dict(last_stage(name))
    uid = re.fullmatch(r"(\d+):(\d+)", found["USER"])
    assert uid and int(uid[1]) > 0 and int(uid[2]) > 0
    assert json.loads(found["HEALTHCHECK"].split("CMD ")[1]) == ["penstock", "health"]
    assert (json.loads(found["ENTRYPOINT"]), json.loads(found["CMD"]), found["STOPSIGNAL"]) == (["penstock"], ["serve"], "SIGTERM")
    assert "PENSTOCK_HOST=0.0.0.0" in found["ENV"] and "VOLUME" not in found
    assert not [line for line in last_stage(name)[2:] if line[0] == "RUN" and line[1] != "ldconfig"]


@pytest.mark.parametrize("name", FILES)
def test_an_image_has_the_libraries_of_the_package(name, deb):
    """Those that the program links, and those that it opens by dlopen."""
    fields = run("dpkg-deb", "-f", deb, "Depends", "Recommends")
    needed = set(re.findall(r"\blib[\w.+-]+", fields)) - {"libc6"}
    assert packages_of(last_stage(name)) == needed and len(needed) > 10


def test_libraries_of_cuda_are_those_that_the_program_opens():
    opened = set()
    for source in (ROOT / "kernels/cuda").rglob("*.cu"):
        if "dlopen(" in source.read_text():
            opened |= set(re.findall(r'"(lib\w+)\.so', source.read_text()))
    listed = [text for word, text in instructions("cuda") if word == "ARG" and text.startswith("LIBRARIES=")]
    assert set(listed[0].split('"')[1].split()) - {"libcublasLt"} == opened  # cuBLAS needs cublasLt


def test_both_images_are_made_in_the_same_way():
    def common(name):
        return [line for line in instructions(name) if line[0] in ("COPY", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD")
                and "toolkit" not in line[1] and "TOOLKIT" not in line[1] and line[1] != "ldconfig"]
    as_cpu = [(word, text.replace("setup.sh cuda", "setup.sh").replace("preset cuda", "preset cpu").replace("build/cuda", "build/cpu")
               .replace("PENSTOCK_CUDA=ON", "PENSTOCK_CUDA=OFF")) for word, text in common("cuda")]
    assert as_cpu == common("cpu") and len(as_cpu) > 10
    environment = {name: dict(last_stage(name))["ENV"].split() for name in FILES}
    assert set(environment["cuda"]) - set(environment["cpu"]) == {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"}
    assert set(environment["cpu"]) < set(environment["cuda"])
