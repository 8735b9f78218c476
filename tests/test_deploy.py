"""What `deploy/` names exists: settings, commands, probes, metrics, sections of the docs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from relevo import App
from relevo.cli import root
from relevo.http.operations import OPERATIONS
from relevo.settings import PREFIX, SECRETS, Settings, load

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
RUNBOOKS = ROOT / "docs" / "how-to" / "act-on-alerts.md"


def loaded(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def command_exists(arguments: list[str]) -> bool:
    """Whether `relevo` takes the arguments, without running anything."""
    group = root.build()
    found = group.get_command(click.Context(group), arguments[0])
    if found is None:
        return False
    known = {option for parameter in found.params for option in parameter.opts}
    return all(word in known for word in arguments if word.startswith("-"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_settings_that_are_set_exist(path: Path) -> None:
    fields = {field.upper() for field in Settings.__struct_fields__}
    fields |= {f"{secret.upper()}_FILE" for secret in SECRETS}
    named = set(re.findall(rf"\b{PREFIX}([A-Z_]+)\b", path.read_text()))
    assert named <= fields, named - fields


def test_the_image_runs_a_host_without_rights() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line[:1].isupper()]
    last = dict(lines)
    assert last["USER"] != "root"
    assert json.loads(last["ENTRYPOINT"]) == ["relevo"]
    assert command_exists(json.loads(last["CMD"]))
    assert "/readyz" in last["HEALTHCHECK"]
    for _, operand in (line for line in lines if line[0] == "COPY" and "--from" not in line[1]):
        *sources, _ = operand.split()
        assert all((ROOT / source).exists() for source in sources), operand


def test_the_compose_file_starts_hosts_that_share_their_secrets() -> None:
    [compose] = loaded("compose.yaml")
    assert set(compose["secrets"]) >= {
        secret for service in compose["services"].values() for secret in service["secrets"]
    }
    hosts = [one for name, one in compose["services"].items() if name != "db"]
    assert len(hosts) == 2
    for host in hosts:
        assert command_exists(host["command"])
        assert host["depends_on"] == {"db": {"condition": "service_healthy"}}
        assert (DEPLOY / host["build"]["context"] / host["build"]["dockerfile"]).exists()


def test_hosts_in_containers_reach_the_actors_of_each_other() -> None:
    """Their homes are apart, so that the Unix sockets in them lead nowhere."""
    [compose] = loaded("compose.yaml")
    services = {name: one for name, one in compose["services"].items() if name != "db"}
    shared = []
    for name, service in services.items():
        settings = load(environ=without_files(service["environment"]))
        assert settings.actors_listen is not None
        port = settings.actors_listen.rpartition(":")[2]
        assert settings.actors_address == f"{name}:{port}"
        shared.append({**service["environment"], "RELEVO_ACTORS_ADDRESS": None})
    assert all(one == shared[0] for one in shared)
    [deployment, *_] = loaded("kubernetes/relevo.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    values = {each["name"]: each.get("value", "") for each in container["env"]}
    unit = (DEPLOY / "systemd" / "relevo.service").read_text()
    values_of_unit = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))
    for environment, own in ((values, "$(POD_IP)"), (values_of_unit, "%H")):
        port = environment["RELEVO_ACTORS_LISTEN"].removeprefix("0.0.0.0:")
        assert environment["RELEVO_ACTORS_ADDRESS"] == f"{own}:{port}"


def without_files(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that do not name a secret's file, which is not here."""
    return {name: value for name, value in environment.items() if not name.endswith("_FILE")}


def test_the_manifests_fit_together() -> None:
    deployment, service, budget = loaded("kubernetes/relevo.yaml")
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    for selector in (
        deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
    ):  # fmt: skip
        assert selector.items() <= labels
    pod = template["spec"]
    [container] = pod["containers"]
    assert command_exists(container["args"])
    paths = {operation.path for operation in OPERATIONS}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["terminationGracePeriodSeconds"] > 2 * Settings().drain_seconds


def test_the_unit_is_one_that_systemd_takes() -> None:
    text = (DEPLOY / "systemd" / "relevo.service").read_text()
    [start] = re.findall(r"^ExecStart=\S+/relevo (.*)$", text, re.MULTILINE)
    assert command_exists(start.split())
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the unit was only read")
    unit = str(DEPLOY / "systemd" / "relevo.service")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if "relevo.service" in line]
    assert all("is not executable" in line for line in complaints), complaints


def metrics() -> set[str]:
    """Every name under which Prometheus stores what a host shows."""
    names = set()
    for family in App(settings=Settings()).metrics.registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
        names |= {family.name + end for end in ends.get(family.type, [""])}
    return names


def test_rules_and_panels_name_metrics_that_exist() -> None:
    [rules] = loaded("prometheus/alerts.yaml")
    board = json.loads((DEPLOY / "grafana" / "relevo.json").read_text())
    texts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    texts += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for text in texts for name in re.findall(r"\brelevo_\w+", text)}
    assert len(named) > 20
    assert named <= metrics(), named - metrics()


def test_each_rule_has_its_section() -> None:
    [rules] = loaded("prometheus/alerts.yaml")
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"{RUNBOOKS.name}#{rule['alert'].lower()}"
