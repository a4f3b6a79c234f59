"""`penstock bench`: its tables are complete, and the served part ends with the process."""
import re
import resource
import subprocess

import pytest

from conftest import BINARY, MODEL, environment


def rows(text, head):
    """Returns the numbers in the rows of the table that begins with this line."""
    lines = text[text.index(head):].splitlines()[2:]
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        table.append([float(cell) for cell in re.findall(r"[\d.]+", line)])
    return table


def bench(*flags, **more):
    return subprocess.run([BINARY, "bench", "--bench-repeats", "1", "--bench-generate", "12", *flags, MODEL], env=environment(),
                          capture_output=True, text=True, timeout=600, **more)


def with_few_files():
    """24 streams have 48 sockets in one process; the client may raise its limit, as the server does."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_each_batch_is_served_and_its_steps_have_parts():
    done = bench("--bench-prompt", "16", "--bench-batch", "1,24", preexec_fn=with_few_files)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| tg 24 .* mlp [\d.]+ ms", done.stdout, re.M), done.stdout
    served = rows(done.stdout, "| batch |    tok/s |")
    assert [row[0] for row in served] == [1, 24]
    for _, rate, step, plan, forward, sample, commit, answers in served:
        assert rate > 0 and forward > 0 and sample > 0 and answers > 0, done.stdout
        # the client measures the step, and the server its parts: on a busy machine they differ
        assert plan + forward + sample + commit < 2 * step, done.stdout
    assert "request client" not in done.stderr


def test_the_report_of_scaling_has_a_row_for_each_number_of_threads():
    done = bench("--scaling", "--threads", "3")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^.*, \d+ processors, \d+ cores, memory nodes: \d+, \d+ GiB, Linux \d", done.stdout, re.M), done.stdout
    table = rows(done.stdout, "| threads |")
    assert [row[0] for row in table] == [1, 2, 3]
    assert all(value > 0 for row in table for value in row) and len(table[0]) == 11
    assert table[0][2::2] == [1, 1, 1, 1, 1]
    assert re.search(r"^load [\d.]+ after the run$", done.stdout, re.M)


@pytest.mark.parametrize("flags, cause", [(["--tensor-parallel-size", "3"], "one rank"),
                                          (["--kv-cache-memory", "1MiB"], "--kv-cache-memory")])
def test_a_plan_that_scaling_cannot_measure_is_refused(flags, cause):
    done = bench("--scaling", "--bench-generate", "300", *flags)
    assert done.returncode == 2 and cause in done.stderr and not done.stdout, (done.returncode, done.stderr)
