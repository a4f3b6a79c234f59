"""linked.py BUILD: prints a line for each Debian package whose code is in the program BUILD/penstock or is loaded by it:
package, version, and how.

static: the linker took objects from its archives. dynamic: the program names its library. below: a dynamic library
needs it. loaded: the program opens its library by dlopen, where it is installed.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def owners(paths):
    """{path: its package}. The system may list a file without the /usr of its real path, and some files are of none."""
    real = {path: str(pathlib.Path(path).resolve()) for path in paths}
    names = {name: at for at in real.values() for name in (at, at.removeprefix("/usr"), "/usr" + at)}
    found = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True, check=False).stdout
    lines = (re.fullmatch(r"([^:,\s]+)(?::\w+)?: (/.*)", line) for line in found.splitlines())
    packages_of = {names[line[2]]: line[1] for line in lines if line}
    return {path: packages_of[at] for path, at in real.items() if at in packages_of}


def archives(build):
    """Objects and archives outside the build folder from which the linker takes code."""
    command = output("ninja", "-C", build, "-t", "commands", "penstock").splitlines()[-1]
    with tempfile.TemporaryDirectory() as folder:
        linked = re.sub(r" -o penstock ", f" -o {folder}/penstock -Wl,--trace,--trace ", command)
        assert linked != command, "the command that links the program has no -o penstock"
        trace = output("sh", "-c", linked, cwd=build)
    return sorted(set(re.findall(r"^\(?(/[^()\s]+\.[ao])\b", trace, re.M)))


def libraries(build):
    """({name: path} of all shared libraries of the program, the names that the program itself has, the names that it
    opens)."""
    program = pathlib.Path(build, "penstock")
    paths = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", program)))
    own = re.findall(r"NEEDED +(\S+)", output("objdump", "-p", program))
    opened = {name.decode() for name in re.findall(rb"\blib[\w-]+\.so\.\d+(?:\.\d+)?(?=\0)", program.read_bytes())} - set(paths)
    return paths, own, opened


def packages(build):
    """{package: (version, how)}"""
    paths, own, opened = libraries(build)
    installed = dict(re.findall(r"^\s*(\S+) \(.*?x86-64.*?\) => (\S+)", output("/sbin/ldconfig", "-p"), re.M))
    ways = (("dynamic", [paths[name] for name in own if name in paths]), ("below", paths.values()), ("static", archives(build)),
            ("loaded", [installed[name] for name in opened if name in installed]))
    of, found = owners([file for _, files in ways for file in files]), {}
    for how, files in ways:
        for file in files:
            assert file in of or how == "static", f"{file} is of no package"
            found.setdefault(of.get(file, pathlib.Path(file).name), how)
    versions = dict(line.split() for line in output("dpkg-query", "-W", "-f", "${Package} ${Version}\n").splitlines() if " " in line)
    return {name: (versions.get(name, "unknown"), how) for name, how in sorted(found.items())}


if __name__ == "__main__":
    for package, (version, how) in packages(sys.argv[1]).items():
        print(package, version, how)
