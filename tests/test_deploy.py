"""What deploy/ says agrees with itself, with the versions that integration/ runs on, and with what the packages have.

The images are not built here: there may be no Docker. Whatever can be known without it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.workspace.load import location_origins_from_yaml_paths

from integration.stack import versions
from streamform import api
from streamform_dagster import HeaderRunCoordinator
from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
INSTANCE: dict[str, Any] = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
README = (DEPLOY / "README.md").read_text()

DAGSTER = {name: service for name, service in SERVICES.items() if service["image"].startswith("streamform-dagster:")}
FLINK = {name: service for name, service in SERVICES.items() if service["image"].startswith("streamform-flink:")}
IMAGE = re.compile(r"([a-z0-9][a-z0-9_-]*/)?[a-z0-9][a-z0-9_-]*:[A-Za-z0-9][A-Za-z0-9._-]*")
"""Repository and tag; a registry's host would have a dot or a port before the first slash."""
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|CREDENTIAL", re.IGNORECASE)
VARIABLE = re.compile(r"\$\{([A-Z_]+)")


def build_arguments() -> dict[str, str]:
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))


def base_images() -> list[str]:
    """The images that the Dockerfile builds on, with its arguments filled in."""
    found = re.findall(r"^FROM (\S+) AS \w+$", DOCKERFILE, re.MULTILINE)
    return [re.sub(r"\$\{(\w+)\}", lambda name: build_arguments()[name.group(1)], image) for image in found]


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def flink_properties() -> dict[str, str]:
    lines = FLINK["jobmanager"]["environment"]["FLINK_PROPERTIES"].splitlines()
    return {key: value for key, _, value in (line.partition(": ") for line in lines)}


def mounts(service: Mapping[str, Any]) -> dict[str, str]:
    """What is mounted where: source by path in the container."""
    return {place: source for source, _, place in (volume.rpartition(":") for volume in service.get("volumes", ()))}


# names and versions


def test_images_are_named_by_repository_and_tag() -> None:
    images = [service["image"] for service in SERVICES.values()] + base_images()
    assert [image for image in images if not IMAGE.fullmatch(image)] == []


def test_versions_are_those_that_the_integration_tests_run_on() -> None:
    flink = {"FLINK_VERSION": versions.FLINK, "KAFKA_CONNECTOR_VERSION": versions.KAFKA_CONNECTOR}
    assert build_arguments() == {**flink, "PYTHON_VERSION": versions.PYTHON}
    assert f"maven-dependency-plugin:{versions.MAVEN_DEPENDENCY_PLUGIN}:copy" in DOCKERFILE
    for service in FLINK.values():
        assert service["build"]["args"] == flink
        assert service["image"] == f"streamform-flink:{versions.FLINK}"
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{versions.KAFKA}"
    assert SERVICES["postgres"]["image"] == f"postgres:{versions.POSTGRES}"
    assert f"flink:{versions.FLINK}-java{versions.JAVA}" in base_images()


def test_the_readme_names_the_images() -> None:
    named = {service["image"].removesuffix(":latest") for service in SERVICES.values()}
    assert [image for image in sorted(named) if f"`{image}`" not in README] == []


# services


def test_services_wait_for_services_that_say_when_they_are_ready() -> None:
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            assert wait == {"condition": "service_healthy"}, name
            assert "healthcheck" in SERVICES[other], f"{name} waits for {other}"


def test_build_stages_exist_and_copy_what_is_there() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE))
    for service in (*DAGSTER.values(), *FLINK.values()):
        assert service["build"]["target"] in stages
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]) == DEPLOY / "../deploy/Dockerfile"
    kept = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for path in line.split():
            assert (REPOSITORY / path).exists(), path
            assert any(fnmatch(path, pattern) for pattern in kept), f".dockerignore leaves out {path}"


def test_ports_are_published_to_this_machine_alone() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)] == []


def test_volumes_are_declared_and_used() -> None:
    named = {source for service in SERVICES.values() for source in mounts(service).values() if re.fullmatch(r"\w+", source)}
    assert named == set(COMPOSE["volumes"])


# secrets


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar with the name that it stands under."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from flat(item, name)
    else:
        yield name, value


def test_secrets_come_from_the_environment() -> None:
    for name, value in flat(COMPOSE):
        assert not SECRET.search(name) or re.match(r"\$\{\w+:\?", str(value)), name
    assert INSTANCE["storage"]["postgres"]["postgres_db"]["password"] == {"env": "DAGSTER_POSTGRES_PASSWORD"}


def test_the_readme_explains_every_variable() -> None:
    used = set(VARIABLE.findall((DEPLOY / "docker-compose.yml").read_text()))
    assert {f"| `{name}` |" for name in used} - set(re.findall(r"^\| `\w+` \|", README, re.MULTILINE)) == set()


# Dagster


def test_the_database_that_dagster_asks_for_is_the_one_that_is_started() -> None:
    settings = INSTANCE["storage"]["postgres"]["postgres_db"]
    needed = {value["env"] for value in settings.values() if isinstance(value, dict)}
    started = SERVICES["postgres"]["environment"]
    for name, service in DAGSTER.items():
        given = service["environment"]
        assert needed <= set(given), name
        assert given["DAGSTER_POSTGRES_HOST"] == "postgres"
        for part in ("USER", "PASSWORD", "DB"):
            assert given[f"DAGSTER_POSTGRES_{part}"] == started[f"POSTGRES_{part}"], name


def test_the_workspace_names_the_code_location() -> None:
    (location,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    server = SERVICES[location["grpc_server"]["host"]]
    port = str(location["grpc_server"]["port"])
    assert option(server["command"], "--port") == port
    assert option(server["command"], "--host") == "0.0.0.0"  # noqa: S104 - inside a container
    assert option(server["healthcheck"]["test"], "--port") == port
    (origin,) = location_origins_from_yaml_paths([str(DEPLOY / "workspace.yaml")])
    assert isinstance(origin, GrpcServerCodeLocationOrigin)
    assert (origin.host, str(origin.port), origin.location_name) == (location["grpc_server"]["host"], port, "streamform")


def test_files_are_where_the_commands_look_for_them() -> None:
    home = re.search(r"^ENV DAGSTER_HOME=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert home is not None
    assert re.search(rf"^COPY .*deploy/dagster\.yaml deploy/workspace\.yaml {home.group(1)}/$", DOCKERFILE, re.MULTILINE)
    for name in ("webserver", "daemon"):
        assert option(SERVICES[name]["command"], "--workspace") == f"{home.group(1)}/workspace.yaml"
    definitions = Path(option(SERVICES["code-location"]["command"], "--python-file"))
    assert definitions.name == "definitions.py"
    assert mounts(SERVICES["code-location"])[str(definitions.parent)].startswith("${STREAMFORM_PROJECT:?")
    assert f"WORKDIR {definitions.parent}" in DOCKERFILE


@pytest.mark.parametrize("coordinator", [dg.QueuedRunCoordinator, HeaderRunCoordinator])
def test_the_instance_loads(coordinator: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SQLite instead of Postgres, which is not here; and with the coordinator that the comment names."""
    settings = {**INSTANCE, "storage": {"sqlite": {"base_dir": str(tmp_path / "storage")}}}
    if coordinator is HeaderRunCoordinator:
        settings["run_coordinator"] = {"module": "streamform_dagster", "class": "HeaderRunCoordinator"}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        assert type(instance.run_coordinator) is coordinator
        assert type(instance.run_launcher).__name__ == "DefaultRunLauncher"
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled


@pytest.mark.skipif(find_spec("dagster_postgres") is None, reason="dagster-postgres is not installed; the image has it")
def test_the_storage_has_the_settings_of_dagster_postgres() -> None:
    from dagster._config import process_config
    from dagster_postgres import DagsterPostgresStorage

    given = {"postgres_db": INSTANCE["storage"]["postgres"]["postgres_db"]}
    result = process_config(DagsterPostgresStorage.config_type(), given)
    assert result.success, result.errors


@pytest.mark.parametrize("name", sorted(DAGSTER))
def test_commands_of_the_image_exist(name: str) -> None:
    command: list[str] = SERVICES[name]["command"]
    script = Path(sys.executable).with_name(command[0])
    if not script.exists():
        pytest.skip(f"{command[0]} is not installed; pip install -e '.[ui]'")
    words = command[1 : next((i for i, word in enumerate(command) if word.startswith("--")), len(command))]
    told = subprocess.run([script, *words, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"})
    assert [word for word in command if word.startswith("--") and not re.search(rf"{word}\b", told.stdout)] == []


# Flink and Kafka, as the project of the README names them


def test_flink_listens_where_its_services_are() -> None:
    settings = flink_properties()
    assert {settings["jobmanager.rpc.address"], settings["rest.address"]} <= set(FLINK)
    assert settings["sql-gateway.endpoint.rest.address"] in FLINK
    assert f"127.0.0.1:{settings['rest.port']}:{settings['rest.port']}" in FLINK["jobmanager"]["ports"]
    port = settings["sql-gateway.endpoint.rest.port"]
    assert f"127.0.0.1:{port}:{port}" in FLINK["sql-gateway"]["ports"]


def test_every_part_of_flink_sees_checkpoints_and_savepoints() -> None:
    settings = flink_properties()
    for setting in ("execution.checkpointing.dir", "execution.checkpointing.savepoint-dir"):
        folder = settings[setting].removeprefix("file://")
        assert re.search(rf"mkdir -p .*{folder}\b.*chown flink:flink .*{folder}\b", DOCKERFILE)
        assert all(folder in mounts(service) for service in FLINK.values())


def test_kafka_is_advertised_under_names_that_reach_it() -> None:
    settings = SERVICES["kafka"]["environment"]
    advertised = dict(entry.split("://") for entry in settings["KAFKA_ADVERTISED_LISTENERS"].split(","))
    listening = {name: place.rsplit(":", 1)[1] for name, place in (e.split("://") for e in settings["KAFKA_LISTENERS"].split(","))}
    assert advertised["PLAINTEXT"] == f"kafka:{listening['PLAINTEXT']}"
    host, port = advertised["HOST"].split(":")
    assert (host, f"127.0.0.1:{port}:{port}") == ("localhost", SERVICES["kafka"]["ports"][0])
    assert set(listening) == {entry.split(":")[0] for entry in settings["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}


def test_the_project_of_the_readme_names_the_services(tmp_path: Path) -> None:
    steps = README.split("```sh\n")[1].split("```")[0]
    done = subprocess.run(
        ["bash", "-ec", steps],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    project = api.load(tmp_path / "build" / "deployed").project
    target = project.target("cluster")
    assert target is not None
    assert target.flink is not None
    assert target.kafka is not None
    settings = flink_properties()
    assert target.flink.rest == f"http://{settings['rest.address']}:{settings['rest.port']}"
    gateway = f"http://{settings['sql-gateway.endpoint.rest.address']}:{settings['sql-gateway.endpoint.rest.port']}"
    assert target.flink.gateway == gateway
    assert target.flink.savepoint_dir == settings["execution.checkpointing.savepoint-dir"]
    assert f"PLAINTEXT://{target.kafka.bootstrap_servers}" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    topics = {endpoint.topic for _, endpoint in (*target.sources, *target.sinks)}
    assert set(re.findall(r"for topic in (.+); do", README)[0].split()) == topics
    assert 'target="cluster"' in (tmp_path / "build" / "deployed" / "definitions.py").read_text()
