"""deploy/prometheus: promtool checks the alerts and runs their unit tests; each has its row in docs/operations.md; their series exist."""
import re
import subprocess
import sys

import yaml
from conftest import ROOT, run

sys.path += [str(ROOT / "tests")]
from e2e.conftest import Server  # noqa: E402

PROMTOOL = ROOT / "build/clients/prometheus/usr/bin/promtool"
RULES = ROOT / "deploy/prometheus/alerts.yml"
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule]


def test_each_alert_fires_by_its_fault_only():
    run(PROMTOOL, "check", "config", ROOT / "deploy/prometheus/prometheus.yml")
    tests = ROOT / "tests/packages/alerts.yml"
    assert {test["name"] for test in yaml.safe_load(tests.read_text())["tests"]} == set(ALERTS) and len(ALERTS) > 10
    done = subprocess.run([PROMTOOL, "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_action_in_the_docs():
    page = (ROOT / "docs/operations.md").read_text()
    assert [alert for alert in ALERTS if f"| `{alert}` |" not in page] == []


def test_the_server_has_every_series_of_the_rules():
    server = Server("--max-model-len", "256", "--kv-cache-memory", "64MiB")
    try:
        text = server.wait_until_ready().http.get("/metrics").text
    finally:
        server.stop()
    for name, labels in set(re.findall(r"\b(vllm:\w+|penstock_\w+|http_\w+|process_\w+)\{([^}]*)\}", RULES.read_text())):
        assert re.search(rf"^{name}[ {{]", text, re.M) or f"# TYPE {name} " in text, name
        for bound in re.findall(r'le="([^"]+)"', labels):
            assert re.search(rf'^{name}\{{[^}}]*le="{bound}"', text, re.M), (name, bound)


def test_compose_mounts_what_exists():
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    sources = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    assert len(sources) > 2 and all((ROOT / "docker" / source).exists() for source in sources if source.startswith(".."))
    board = (ROOT / "deploy/grafana/provisioning/dashboards/penstock.yml").read_text()
    assert "/var/lib/grafana/boards" in board
