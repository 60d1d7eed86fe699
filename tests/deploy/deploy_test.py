"""Files of ``deploy`` fit the server: flags, ports, users and times; routes and metrics are checked beside it."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tapeline.command import load_command

_FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy"
_EXIT_SECONDS: Final = 4  # the process ends so long after the drain if a thread hangs (docs/serving.md)
_MODEL_IMAGE: Final = ("FROM", "python:3.11-slim")


def _instructions() -> list[tuple[str, str]]:
    """Returns the instructions of the Dockerfile with their arguments, lines joined."""
    lines = (_FOLDER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def _objects() -> dict[str, Any]:
    """Returns the objects of kubernetes.yaml by kind."""
    listed = list(yaml.safe_load_all((_FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")))
    kinds = {entry["kind"]: entry for entry in listed}
    assert len(kinds) == len(listed)
    return kinds


def _serve_flags(words: list[str]) -> dict[str, Any]:
    """Returns the values of serve's flags after parsing; the parser refuses unknown flags and values."""
    flags = load_command("serve").FLAGS
    assert flags(["serve", *words]) == ["serve"]
    return {name: flags[name].value for name in flags}


def test_the_image_serves_as_a_user_without_rights() -> None:
    listed = _instructions()
    names = [name for name, _ in listed]
    assert listed[0] == _MODEL_IMAGE
    assert names[-1] == "ENTRYPOINT"
    assert names.index("USER") > max(index for index, name in enumerate(names) if name in ("RUN", "COPY"))
    arguments = dict(listed)
    user, _, group = arguments["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f"--uid {user} " in arguments["RUN"]
    assert json.loads(arguments["ENTRYPOINT"]) == ["tapeline", "serve"]
    variables = dict(word.split("=", 1) for word in shlex.split(arguments["ENV"]))
    assert set(variables) >= {"TAPELINE_HOST", "TAPELINE_PORT", "XDG_CACHE_HOME"}
    for name in (name for name in variables if name.startswith("TAPELINE_")):
        assert name.removeprefix("TAPELINE_").lower() in load_command("serve").FLAGS, name
    assert arguments["EXPOSE"] == variables["TAPELINE_PORT"]
    assert json.loads(arguments["VOLUME"]) == [variables["XDG_CACHE_HOME"]]
    health = json.loads(arguments["HEALTHCHECK"].partition("CMD ")[2])
    (address,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", health[-1])
    assert address == (variables["TAPELINE_PORT"], "/live")
    compile(health[-1], "HEALTHCHECK", "exec")


def test_probes_ports_and_times_of_kubernetes_are_the_servers() -> None:
    kinds = _objects()
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    flags = _serve_flags([*container["args"]])
    assert pod["terminationGracePeriodSeconds"] > flags["drain_seconds"] + _EXIT_SECONDS
    (port,) = container["ports"]
    assert str(port["containerPort"]) == dict(_instructions())["EXPOSE"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"  # not /health, which is 503 while models load
    (served,) = kinds["Service"]["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    annotations = kinds["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert (annotations["prometheus.io/path"], annotations["prometheus.io/port"]) == ("/metrics", "8000")


def test_the_pod_has_no_rights_and_its_volumes() -> None:
    kinds = _objects()
    deployment = kinds["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    user = dict(_instructions())["USER"]
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user
    rights = container["securityContext"]
    assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(volumes) == set(mounts)
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert claim == kinds["PersistentVolumeClaim"]["metadata"]["name"]
    flags = _serve_flags([*container["args"]])
    assert all(path.startswith(mounts["models"]["mountPath"] + "/") for path in flags["bundle"])
    cache = dict(word.split("=", 1) for word in shlex.split(dict(_instructions())["ENV"]))["XDG_CACHE_HOME"]
    assert mounts["cache"]["mountPath"] == cache


def test_objects_refer_to_one_another() -> None:
    kinds = _objects()
    versions = {
        "PersistentVolumeClaim": "v1",
        "Deployment": "apps/v1",
        "Service": "v1",
        "PodDisruptionBudget": "policy/v1",
        "HorizontalPodAutoscaler": "autoscaling/v2",
    }
    assert {kind: entry["apiVersion"] for kind, entry in kinds.items()} == versions
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["Service"]["spec"]["selector"] == labels
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    scaler = kinds["HorizontalPodAutoscaler"]["spec"]
    target = {key: scaler["scaleTargetRef"][key] for key in ("apiVersion", "kind")}
    assert target == {key: kinds["Deployment"][key] for key in target}
    assert scaler["scaleTargetRef"]["name"] == kinds["Deployment"]["metadata"]["name"]
    assert scaler["minReplicas"] < scaler["maxReplicas"]


def _unit() -> dict[str, list[str]]:
    """Returns the settings of the unit, each with its values."""
    settings: dict[str, list[str]] = {}
    for line in (_FOLDER / "tapeline.service").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("[", "#")):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def test_the_unit_starts_and_stops_the_server() -> None:
    unit = _unit()
    program, command, *words = shlex.split(unit["ExecStart"][0].replace("${CREDENTIALS_DIRECTORY}", "/run/credentials"))
    assert (Path(program).name, command) == ("tapeline", "serve")
    flags = _serve_flags(words)
    assert int(unit["TimeoutStopSec"][0]) > flags["drain_seconds"] + _EXIT_SECONDS
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert unit["DynamicUser"] == ["yes"]
    (cache,) = unit["CacheDirectory"]
    assert unit["Environment"] == [f"XDG_CACHE_HOME=/var/cache/{cache}"]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: the unit is not checked by systemd itself")
    text = (_FOLDER / "tapeline.service").read_text(encoding="utf-8")
    unit = tmp_path / "tapeline.service"
    unit.write_text(text.replace("/opt/tapeline/bin/tapeline", "/bin/true"), encoding="utf-8")
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "tapeline.service" in line]
    assert not ours, done.stderr
    unit.write_text(text.replace("DynamicUser=yes", "DynamicUse=yes"), encoding="utf-8")
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert "Unknown key" in done.stderr  # so that the check can fail
