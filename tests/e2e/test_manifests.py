"""deploy/kubernetes: kubectl builds each overlay, the results agree with the schemas of Kubernetes, and each port, path, probe,
variable and metric in them is served. The router's own paths are tested by tests/clients."""
import functools
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml
from conftest import ROOT, Server

FOLDER = ROOT / "deploy/kubernetes"
OVERLAYS = ["base", "cpu", "cuda", "router", "llm-d"]
# Of the Gateway API and its inference extension, which are not part of Kubernetes.
OTHER_KINDS = {"HTTPRoute", "InferencePool"}
ROUTER_PATHS = {"/readiness", "/liveness"}
# Of deployments that are not Penstock: the picker's gRPC ports and the ports of the metrics of router and picker.
OTHER_PORTS = {9002, 9003, 9090, 29000}


@functools.cache
def built(overlay):
    assert shutil.which("kubectl"), "docker/setup.sh test installs kubectl"
    made = subprocess.run(["kubectl", "kustomize", str(FOLDER / overlay)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


def of_kind(overlay, kind):
    return {one["metadata"]["name"]: one for one in built(overlay) if one["kind"] == kind}


def pod(deployment):
    return deployment["spec"]["template"]["spec"]


def everywhere(node, key):
    """Yields each value of a key, at any depth."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if name == key:
            yield value
        yield from everywhere(value, key)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_agree_with_the_schemas(overlay):
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(OVERLAYS)
    for one in built(overlay):
        if one["kind"] not in OTHER_KINDS:
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_and_labels_refer_to_something(overlay):
    deployments = of_kind(overlay, "Deployment")
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in deployments.values()]
    ports = {port for one in deployments.values() for box in pod(one)["containers"] for port in
             [entry["name"] for entry in box["ports"]] + [entry["containerPort"] for entry in box["ports"]]}
    for one in deployments.values():
        assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
        assert pod(one)["serviceAccountName"] in of_kind(overlay, "ServiceAccount")
        assert "replicas" in one["spec"] or one["metadata"]["name"] == "penstock", "the autoscaler has the number"
        for name in everywhere(pod(one), "configMap"):
            assert name["name"] in of_kind(overlay, "ConfigMap")
    for kind in "Service", "PodDisruptionBudget", "NetworkPolicy", "InferencePool":
        for one in of_kind(overlay, kind).values():
            selector = one["spec"].get("selector") or one["spec"]["podSelector"]
            assert selector.get("matchLabels", selector) in labels
            assert {*everywhere(one, "targetPort"), *everywhere(one["spec"].get("targetPorts", []), "number")} <= ports
    for one in of_kind(overlay, "HorizontalPodAutoscaler").values():
        assert one["spec"]["scaleTargetRef"]["name"] in deployments
    for one in of_kind(overlay, "InferencePool").values():
        assert one["spec"]["endpointPickerRef"]["name"] in of_kind(overlay, "Service")
    for one in of_kind(overlay, "RoleBinding").values():
        assert one["roleRef"]["name"] in of_kind(overlay, "Role")
        assert {subject["name"] for subject in one["subjects"]} <= set(of_kind(overlay, "ServiceAccount"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_have_few_rights(overlay):
    for one in of_kind(overlay, "Deployment").values():
        assert pod(one)["securityContext"]["runAsNonRoot"] and pod(one)["securityContext"]["runAsUser"] > 0
        for box in pod(one)["containers"]:
            rights = box["securityContext"]
            assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert overlay == "base" or "memory" in box["resources"]["limits"]


def variables(overlay):
    box = pod(of_kind(overlay, "Deployment")["penstock"])["containers"][0]
    return {entry["name"]: entry.get("value") for entry in box["env"]}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_variables_and_ports_are_the_server_s(overlay):
    own, spec = variables(overlay), pod(of_kind(overlay, "Deployment")["penstock"])
    options = (ROOT / "docs/options.md").read_text()
    assert all(f"`{name}`" in options for name in own), own
    assert spec["terminationGracePeriodSeconds"] > int(own["PENSTOCK_DRAIN_DELAY"]) + int(own["PENSTOCK_DRAIN_TIMEOUT"])
    port = int(own["PENSTOCK_PORT"])
    text = "\n".join(path.read_text() for path in (FOLDER / overlay).glob("*.yaml"))
    named = re.findall(r"(?:[Pp]ort|PORT|number)(?:[^\n:=]*[:=] ?| *, value: )\"?(\d+)", text)
    assert {int(number) for number in named} <= {port, *OTHER_PORTS}


def test_paths_probes_and_metrics_are_served():
    """The server has the variables of the manifest, except for its port and the device."""
    own = {name: value for name, value in variables("cpu").items() if value and name != "PENSTOCK_PORT"}
    server = Server("--max-model-len", "256", "--kv-cache-memory", "16MiB", env=own)
    try:
        server.wait_until_ready()
        text = "\n".join(path.read_text() for path in FOLDER.glob("*/*.yaml"))
        paths = set(re.findall(r"path: (/[a-z/_]+)(?=[,}\n])", text)) | set(re.findall(r"prometheus.io/path: (\S+)", text))
        assert {"/health/live", "/health/ready", "/metrics"} <= paths
        for path in paths - ROUTER_PATHS:
            assert server.http.get(path).status_code == 200, path
        prefixes = re.findall(r"PathPrefix, value: (\S+?)}", text)
        assert prefixes == ["/v1/"] and server.http.get("/v1/models").status_code == 200
        served = server.http.get("/metrics").text
        metrics = set(re.findall(r"\b(?:vllm:|penstock_)[a-z_]+", text))
        assert "vllm:num_requests_waiting" in metrics
        for metric in metrics - {"vllm:lora_requests_info"}:  # this one needs --lora
            assert f"\n{metric}{{" in served or f"\n{metric} " in served, metric
    finally:
        server.stop()
