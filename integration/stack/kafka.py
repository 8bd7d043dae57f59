"""One Kafka broker that is its own controller (KRaft), as a process."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException

from integration.stack import fetch
from integration.stack.errors import StackError
from integration.stack.ports import HOST, is_listening
from integration.stack.process import Part, Places, java_command
from integration.stack.topics import make_admin

LOOK_S = 2.0
FORMAT_S = 60.0
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx384m")
LOG_SETTINGS = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = Out
appender.out.name = Out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""


class KafkaBroker(Part):
    """The broker; what it holds survives its end, since it starts again on the same data."""

    name = "kafka"
    main = "kafka.Kafka"
    format_main = "kafka.tools.StorageTool"

    def __init__(self, places: Places, port: int, controller_port: int, options: Mapping[str, str] | None = None) -> None:
        super().__init__(places)
        self.port = port
        self.controller_port = controller_port
        self.options = dict(options or {})
        """Further lines of server.properties, which win over ours."""

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return f"{HOST}:{self.port}"

    def settings(self) -> dict[str, str]:
        """What server.properties says."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "num.partitions": "1",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A record with the time of an old event must not be removed for its age while a test reads it.
            "log.retention.ms": "-1",
            **self.options,
        }

    @property
    def data(self) -> Path:
        """The folder of its log segments."""
        return self.places.run / "kafka" / "data"

    def command(self) -> list[str]:
        folder = self.places.make("kafka")
        properties = folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()), "utf-8")
        (folder / "log4j2.properties").write_text(LOG_SETTINGS, "utf-8")
        if not (self.data / "meta.properties").exists():
            self.format(properties)
        return self.java(self.main, str(properties))

    def java(self, main: str, *arguments: str) -> list[str]:
        """A command line of one of Kafka's programs."""
        options = [
            *JAVA_OPTIONS,
            f"-Djava.io.tmpdir={self.places.make('kafka', 'tmp')}",
            f"-Dlog4j2.configurationFile={(self.places.run / 'kafka' / 'log4j2.properties').as_uri()}",
        ]
        return java_command(options, fetch.jars(fetch.KAFKA), main, arguments)

    def format(self, properties: Path) -> None:
        """Prepare the data folder for a new cluster. Raises: StackError with what the tool said."""
        command = self.java(self.format_main, "format", "-t", cluster_id(), "-c", str(properties))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FORMAT_S, check=False)
        if done.returncode:
            raise StackError(f"Kafka's storage could not be formatted:\n{(done.stdout + done.stderr)[-2000:]}")

    def is_ready(self) -> bool:
        if not is_listening(self.port):
            return False
        try:
            return bool(make_admin(self.bootstrap_servers).list_topics(timeout=LOOK_S).brokers)
        except KafkaException:
            return False


def cluster_id() -> str:
    """A new id in Kafka's form: a UUID in 22 letters."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
