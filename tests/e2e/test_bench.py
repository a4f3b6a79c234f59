"""`penstock bench`: its tables are complete, and the served part ends with the process."""
import re
import resource
import subprocess

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


def with_few_files():
    """24 streams have 48 sockets in one process; the client may raise its limit, as the server does."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_each_batch_is_served_and_its_steps_have_parts():
    command = [BINARY, "bench", "--bench-prompt", "16", "--bench-batch", "1,24", "--bench-repeats", "1",
               "--bench-generate", "12", MODEL]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120,
                          preexec_fn=with_few_files)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| tg 24 .* mlp [\d.]+ ms", done.stdout, re.M), done.stdout
    served = rows(done.stdout, "| batch |    tok/s |")
    assert [row[0] for row in served] == [1, 24]
    for _, rate, step, plan, forward, sample, commit, answers in served:
        assert rate > 0 and forward > 0 and sample > 0 and answers > 0, done.stdout
        assert plan + forward + sample + commit <= step * 1.01, done.stdout
    assert "request client" not in done.stderr
