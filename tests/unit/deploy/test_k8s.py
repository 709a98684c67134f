"""The manifests are valid, hardened, and name only what exists. None is applied: there may be no cluster."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from consumer.cli import app
from consumer.commands.worker import LANES
from consumer.settings.model import Settings
from consumer.settings.types import PREFIX, variable
from consumer.settings.validation import SECRETS_DIR, is_secret
from tests.unit.deploy.promql import ROOT, rules

K8S = ROOT / "deploy" / "k8s"
BASE, PRODUCTION = K8S / "base", K8S / "overlays" / "production"
Json = dict[str, Any]


def kustomization(directory: Path) -> Json:
    document: Json = yaml.safe_load((directory / "kustomization.yaml").read_text())
    return document


def documents(directory: Path) -> list[Json]:
    paths = [directory / name for name in kustomization(directory)["resources"] if name.endswith(".yaml")]
    return [document for path in paths for document in yaml.safe_load_all(path.read_text())]


def literals(directory: Path) -> dict[str, str]:
    (generator,) = kustomization(directory)["configMapGenerator"]
    return dict(line.split("=", 1) for line in generator["literals"])


EVERYTHING = documents(BASE)
DEPLOYMENTS = {manifest["metadata"]["name"]: manifest for manifest in EVERYTHING if manifest["kind"] == "Deployment"}
JOBS = [manifest for manifest in EVERYTHING if manifest["kind"] == "Job"]
WORKLOADS = {workload["metadata"]["name"]: workload for workload in [*DEPLOYMENTS.values(), *JOBS]}
PORTS = {
    "worker": "worker_port",
    "tools": "tools_metrics_port",
    "relay": "relay_metrics_port",
    "exporter": "exporter_port",
}


def default(field: str) -> Any:
    return Settings.model_fields[field].default


def kind(name: str) -> list[Json]:
    return [manifest for manifest in EVERYTHING if manifest["kind"] == name]


def container(workload: Json) -> Json:
    containers: list[Json] = workload["spec"]["template"]["spec"]["containers"]
    (only,) = containers
    return only


def pod_labels(workload: Json) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


@pytest.mark.parametrize(
    "document", EVERYTHING, ids=lambda manifest: f"{manifest['kind']}/{manifest['metadata']['name']}"
)
def test_a_manifest_is_valid(document: Json) -> None:
    if document["apiVersion"].split("/")[0] in ("keda.sh", "monitoring.coreos.com"):
        assert document["spec"], "a custom resource: its schema is not at hand"
    else:
        kubernetes_validate.validate(document, "1.37", strict=True)


@pytest.mark.parametrize("directory", [BASE, PRODUCTION], ids=["base", "production"])
def test_kustomize_builds_the_manifests(directory: Path) -> None:
    tool = (
        [shutil.which("kustomize") or "", "build"]
        if shutil.which("kustomize")
        else [shutil.which("kubectl") or "", "kustomize"]
    )
    if not tool[0]:
        pytest.skip("there is neither kustomize nor kubectl")
    built = subprocess.run([*tool, str(directory)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    manifests = list(yaml.safe_load_all(built.stdout))
    assert {manifest["kind"] for manifest in manifests} >= {manifest["kind"] for manifest in EVERYTHING}
    namespaces = {manifest["metadata"].get("namespace") for manifest in manifests if manifest["kind"] != "Namespace"}
    assert namespaces == {"paperclip-memory"}


@pytest.mark.parametrize("directory", [BASE, PRODUCTION], ids=["base", "production"])
def test_every_resource_is_a_file_and_every_file_is_a_resource(directory: Path) -> None:
    resources = set(kustomization(directory)["resources"])
    assert {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml"} == {
        name for name in resources if name.endswith(".yaml")
    }


def test_every_workload_runs_an_existing_command() -> None:
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    arguments = {name: container(workload)["args"] for name, workload in WORKLOADS.items()}
    assert {line[0] for line in arguments.values()} == {"topics", *PORTS}
    assert {line[0] for line in arguments.values()} <= commands
    lanes = [line[2] for line in arguments.values() if line[1:2] == ["--lane"]]
    assert sorted(lanes) == sorted(LANES), "one Deployment for each lane"


@pytest.mark.parametrize("directory", [BASE, PRODUCTION], ids=["base", "production"])
def test_config_map_settings_exist_and_are_not_secrets(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {variable(name): name for name in Settings.model_fields}
    for name, text in (literals(BASE) | literals(directory)).items():
        assert name in fields or name == SECRETS_DIR
        if name in fields:
            assert not is_secret(fields[name])
            monkeypatch.setenv(name, text)
    for name in ("KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"):
        if directory == PRODUCTION:
            monkeypatch.setenv(PREFIX + name, "from the secret")
    Settings()


@pytest.mark.parametrize("name", WORKLOADS)
def test_secrets_are_mounted_as_files(name: str) -> None:
    spec = WORKLOADS[name]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["secrets"]["secret"]["secretName"] == "paperclip-memory"
    mounts = {mount["name"]: mount for mount in container(WORKLOADS[name])["volumeMounts"]}
    assert mounts["secrets"]["mountPath"] == literals(BASE)[SECRETS_DIR]
    assert mounts["secrets"]["readOnly"] is True
    assert kind("Secret") == []
    assert "env" not in container(WORKLOADS[name])


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_meet_the_restricted_pod_security_standard(name: str) -> None:
    spec = WORKLOADS[name]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert f"USER {spec['securityContext']['runAsUser']}:" in (ROOT / "deploy/Dockerfile").read_text()
    assert spec["automountServiceAccountToken"] is False
    assert container(WORKLOADS[name])["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container(WORKLOADS[name])["resources"].keys() == {"requests", "limits"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_use_the_metrics_port(name: str) -> None:
    spec = container(DEPLOYMENTS[name])
    ports = {port["name"]: port["containerPort"] for port in spec["ports"]}
    component = pod_labels(DEPLOYMENTS[name])["app.kubernetes.io/component"]
    assert ports["metrics"] == default(PORTS[component])
    paths = {probe: spec[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {get["port"] for get in paths.values()} == {"metrics"}
    assert [get["path"] for get in paths.values()] == ["/livez", "/livez", "/readyz"]
    grace = DEPLOYMENTS[name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > default("shutdown_timeout") + 5


@pytest.mark.parametrize("service", kind("Service"), ids=lambda manifest: manifest["metadata"]["name"])
def test_services_select_pods_that_have_their_ports(service: Json) -> None:
    pods = [
        workload
        for workload in DEPLOYMENTS.values()
        if service["spec"]["selector"].items() <= pod_labels(workload).items()
    ]
    assert pods
    (port,) = service["spec"]["ports"]
    for workload in pods:
        assert {port["targetPort"]: port["port"]}.items() <= {
            named["name"]: named["containerPort"] for named in container(workload)["ports"]
        }.items()


def test_every_pod_is_scraped_under_the_job_of_rules_and_panels() -> None:
    (monitor,) = kind("ServiceMonitor")
    scraped = [
        service
        for service in kind("Service")
        if monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"].get("labels", {}).items()
    ]
    components = {service["spec"]["selector"]["app.kubernetes.io/component"] for service in scraped}
    assert components == set(PORTS)
    assert monitor["spec"]["endpoints"][0]["port"] == "metrics"
    label = monitor["spec"]["jobLabel"]
    assert kustomization(BASE)["labels"][0]["pairs"][label] == "paperclip-memory"


def test_rules_yaml_has_the_rules_of_prometheus() -> None:
    checked = subprocess.run([sys.executable, "-m", "deploy.k8s.rules", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "python -m deploy.k8s.rules regenerates them"
    (resource,) = kind("PrometheusRule")
    assert [rule for group in resource["spec"]["groups"] for rule in group["rules"]] == rules()


@pytest.mark.parametrize("budget", kind("PodDisruptionBudget"), ids=lambda manifest: manifest["metadata"]["name"])
def test_a_disruption_budget_selects_its_deployment(budget: Json) -> None:
    selector = budget["spec"]["selector"]["matchLabels"].items()
    assert [name for name, workload in DEPLOYMENTS.items() if selector <= pod_labels(workload).items()] == [
        budget["metadata"]["name"]
    ]


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_is_scaled_on_its_own_lag_up_to_its_partitions_and_down_slowly(lane: str) -> None:
    scaled = {manifest["metadata"]["name"]: manifest["spec"] for manifest in kind("ScaledObject")}
    assert set(scaled) == {f"worker-{name}" for name in LANES}
    spec = scaled[f"worker-{lane}"]
    assert spec["scaleTargetRef"] == {"name": f"worker-{lane}"}
    assert spec["maxReplicaCount"] == default("topic_partitions")
    assert "replicas" not in DEPLOYMENTS[f"worker-{lane}"]["spec"], "KEDA's, and no apply takes them back"
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] >= 600
    (trigger,) = spec["triggers"]
    topic = {"recall": "topic_agent_runs", "retain": "topic_issue_comments"}[lane]
    assert trigger["type"] == "kafka"
    assert trigger["metadata"]["consumerGroup"] == default(f"group_{lane}")
    assert trigger["metadata"]["topic"] == default(topic)
    assert trigger["metadata"]["bootstrapServers"] == literals(BASE)[variable("kafka_bootstrap_servers")]
    assert trigger["metadata"]["offsetResetPolicy"] == "earliest"


def test_the_network_policy_admits_only_prometheus_and_paperclip() -> None:
    everybody, tools = kind("NetworkPolicy")
    assert everybody["spec"]["podSelector"] == {}
    assert set(everybody["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    (monitoring,) = everybody["spec"]["ingress"]
    (ports,) = monitoring["ports"]
    assert all(ports["port"] <= default(field) <= ports["endPort"] for field in PORTS.values())
    assert tools["spec"]["ingress"][0]["ports"] == [{"port": "tools"}]
    assert {port["name"]: port["containerPort"] for port in container(DEPLOYMENTS["tools"])["ports"]}[
        "tools"
    ] == default("tools_port")


def test_manifests_use_the_image_version_of_this_repository() -> None:
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert all(
        image["newTag"] == version for directory in (BASE, PRODUCTION) for image in kustomization(directory)["images"]
    )
    assert {container(workload)["image"] for workload in WORKLOADS.values()} == {
        kustomization(BASE)["images"][0]["name"]
    }
    assert f"PAPERCLIP_MEMORY_VERSION:-{version}}}" in (ROOT / "docker-compose.yml").read_text()
