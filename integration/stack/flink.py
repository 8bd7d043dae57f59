"""Flink's JobManager and TaskManager as processes, configured for a laptop: one cluster, everything on the loopback interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import requests

from integration.stack import fetch
from integration.stack.ports import HOST
from integration.stack.process import Part, Places, java_command

LOOK_S = 2.0
OPENED = ("java.base/sun.net.util", "java.rmi/sun.rmi.registry", "java.security.jgss/sun.security.krb5")
OPENED_DEEPLY = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
    "util.concurrent.locks",
)
JAVA_OPTIONS = (
    # A small collector and one compiler: starting matters more here than peak speed.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxMetaspaceSize=512m",
    "-XX:-UsePerfData",
    *(f"--add-exports={package}=ALL-UNNAMED" for package in OPENED),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in (*(f"java.{name}" for name in OPENED_DEEPLY), "sun.nio.ch")),
)
LOG_SETTINGS = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = Out
appender.out.name = Out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{1} - %m%n
logger.pekko.name = org.apache.pekko
logger.pekko.level = WARN
logger.kafka.name = org.apache.kafka
logger.kafka.level = WARN
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one Flink cluster's parts agree on."""

    places: Places
    rest_port: int
    rpc_port: int
    blob_port: int
    slots: int = 16
    options: Mapping[str, str] = field(default_factory=dict)
    """Further lines of Flink's config.yaml, which win over ours."""

    @property
    def rest_url(self) -> str:
        """The JobManager's REST address."""
        return f"http://{HOST}:{self.rest_port}"

    @property
    def conf(self) -> Path:
        """The folder of config.yaml."""
        return self.places.make("flink", "conf")

    def settings(self) -> dict[str, str]:
        """What config.yaml says."""
        return {
            "jobmanager.rpc.address": HOST,
            "jobmanager.rpc.port": str(self.rpc_port),
            "jobmanager.bind-host": HOST,
            "taskmanager.host": HOST,
            "taskmanager.bind-host": HOST,
            "taskmanager.numberOfTaskSlots": str(self.slots),
            "rest.address": HOST,
            "rest.bind-address": HOST,
            "rest.port": str(self.rest_port),
            "rest.bind-port": str(self.rest_port),
            "blob.server.port": str(self.blob_port),
            "io.tmp.dirs": str(self.places.make("flink", "tmp")),
            "parallelism.default": "1",
            "execution.checkpointing.dir": self.places.make("checkpoints").as_uri(),
            "execution.checkpointing.savepoint-dir": self.places.make("savepoints").as_uri(),
            # A killed part is noticed, and a started one is found, within seconds instead of a minute.
            "heartbeat.interval": "2 s",
            "heartbeat.timeout": "20 s",
            "cluster.registration.error-delay": "500 ms",
            "cluster.registration.refused-registration-delay": "500 ms",
            **self.options,
        }

    def write(self) -> Path:
        """Write config.yaml and the log settings; the folder they are in."""
        lines = [f"{key}: {value}\n" for key, value in self.settings().items()]
        (self.conf / "config.yaml").write_text("".join(lines), "utf-8")
        (self.conf / "log4j.properties").write_text(LOG_SETTINGS, "utf-8")
        return self.conf

    def java(self, *options: str) -> list[str]:
        """Options that Java gets in every part of the cluster, and these."""
        temporary = f"-Djava.io.tmpdir={self.places.make('flink', 'tmp')}"
        return [*JAVA_OPTIONS, *options, temporary, f"-Dlog4j.configurationFile={(self.conf / 'log4j.properties').as_uri()}"]


class FlinkPart(Part):
    """A part of a Flink cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.places)
        self.cluster = cluster

    def overview(self) -> dict[str, int | str]:
        """What the JobManager says about its cluster; empty while it does not answer."""
        try:
            answer = requests.get(f"{self.cluster.rest_url}/overview", timeout=LOOK_S)
            found: dict[str, int | str] = answer.json() if answer.ok else {}
        except (requests.RequestException, ValueError):
            return {}
        return found


class JobManager(FlinkPart):
    """The JobManager; its jobs are gone when it ends, because nothing here keeps them elsewhere."""

    name = "jobmanager"
    main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"

    @property
    def url(self) -> str:
        """The REST address."""
        return self.cluster.rest_url

    def command(self) -> list[str]:
        conf = self.cluster.write()
        arguments = ("--configDir", str(conf), "--executionMode", "cluster")
        return java_command(self.cluster.java("-Xmx448m"), class_path(), self.main, arguments)

    def is_ready(self) -> bool:
        return bool(self.overview())


class TaskManager(FlinkPart):
    """The one TaskManager; started after the JobManager answers."""

    name = "taskmanager"
    main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

    def command(self) -> list[str]:
        memory = memory_settings(self.cluster.slots)
        conf = self.cluster.write()
        heap = memory["framework.heap"] + memory["task.heap"]
        direct = memory["framework.off-heap"] + memory["task.off-heap"] + memory["network"]
        options = self.cluster.java(f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={direct}m")
        arguments = ["--configDir", str(conf)]
        for key, value in memory_options(memory).items():
            arguments += ["-D", f"{key}={value}"]
        return java_command(options, class_path(), self.main, arguments)

    def is_ready(self) -> bool:
        return int(self.overview().get("slots-total", 0)) >= self.cluster.slots


def memory_settings(slots: int) -> dict[str, int]:
    """How much of each kind of memory a TaskManager with so many slots gets. Units: MiB."""
    return {
        "framework.heap": 128,
        "task.heap": 128 + 40 * slots,
        "framework.off-heap": 128,
        "task.off-heap": 0,
        "network": 64 + 4 * slots,
        "managed": 16 * slots,
        "jvm-metaspace": 512,
        "jvm-overhead": 192,
    }


def memory_options(memory: Mapping[str, int]) -> dict[str, str]:
    """The settings that Flink's start script would compute; without them the TaskManager refuses to start."""
    sized = {f"taskmanager.memory.{name}.size": amount for name, amount in memory.items() if name not in ("network", "jvm-overhead")}
    bounded = {f"taskmanager.memory.{name}.{end}": memory[name] for name in ("network", "jvm-overhead") for end in ("min", "max")}
    total = {"taskmanager.memory.process.size": sum(memory.values())}
    return {"taskmanager.cpu.cores": "2.0", **{key: f"{amount}mb" for key, amount in {**sized, **bounded, **total}.items()}}


def class_path() -> list[Path]:
    """Flink's jars and the Kafka connector, which sources and sinks need in every part."""
    return [*(jar for jar in fetch.jars(fetch.FLINK) if not jar.name.startswith("flink-python")), *fetch.jars(fetch.CONNECTOR)]
