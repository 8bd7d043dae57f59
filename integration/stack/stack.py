"""A whole stack: starts its parts in the order that works, knows their addresses, ends exactly them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from integration.stack import fetch, runs
from integration.stack.errors import StackError
from integration.stack.flink import Cluster, JobManager, TaskManager
from integration.stack.gateway import SqlGateway
from integration.stack.kafka import KafkaBroker
from integration.stack.ports import free_ports
from integration.stack.process import Part, Places, missing_java

PARTS = ("flink", "gateway", "kafka")
PORTS = {"flink": ("rest", "rpc", "blob"), "gateway": ("gateway",), "kafka": ("kafka", "controller")}
ENDPOINTS = "endpoints.json"
ENDPOINTS_VERSION = 1
P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a stack consists of; its endpoints.json holds it, so that another process can use the stack."""

    parts: frozenset[str]
    ports: Mapping[str, int]
    slots: int = 16
    flink_options: Mapping[str, str] = field(default_factory=dict)
    kafka_options: Mapping[str, str] = field(default_factory=dict)


class Stack:
    """Flink, gateway and Kafka, as far as asked for. Leaving the context ends what it started."""

    def __init__(self, shape: Shape, places: Places) -> None:
        self.shape = shape
        self.places = places
        self.parts = make_parts(shape, places)
        """By label, in the order in which they start."""
        self.is_attached = False

    @classmethod
    def start(
        cls,
        parts: Iterable[str] = PARTS,
        run_dir: Path | str | None = None,
        *,
        slots: int = 16,
        flink_options: Mapping[str, str] | None = None,
        kafka_options: Mapping[str, str] | None = None,
        owned: bool = True,
        say: Callable[[str], None] = lambda text: None,
    ) -> Self:
        """Fetch what is missing, start the parts and wait until all are ready.

        An owned stack is ended by `python -m integration.stack stop` once the process that started it is gone; one that is not
        owned goes on until it is named. The options are further settings of Flink's config.yaml and Kafka's server.properties.
        Raises: StackError; whatever had started is ended.
        """
        chosen = frozenset(parts)
        missing = missing_parts(chosen)
        if missing:
            raise StackError("; ".join(missing))
        fetch.fetch(chosen, say=say)
        folder = Path(run_dir) if run_dir else Path(tempfile.mkdtemp(prefix="streamform-stack-"))
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for part in PARTS if part in chosen for name in PORTS[part]]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        stack = cls(Shape(chosen, ports, slots, flink_options or {}, kafka_options or {}), runs.places_of(folder))
        stack.bring_up(owned=owned, say=say)
        return stack

    @classmethod
    def attach(cls, endpoints: Path | str) -> Self:
        """The running stack that an endpoints.json describes; leaving its context leaves it running.

        Raises: StackError when the file is not one, or its stack does not run.
        """
        try:
            document = json.loads(Path(endpoints).read_text("utf-8"))
            if document["endpoints_version"] != ENDPOINTS_VERSION:
                raise StackError(f"{endpoints} is of another version")
            options = (document["flink_options"], document["kafka_options"])
            shape = Shape(frozenset(document["parts"]), document["ports"], document["slots"], *options)
            stack = cls(shape, runs.places_of(Path(document["run_dir"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StackError(f"{endpoints} does not describe a stack: {error}") from error
        gone = [label for label, part in stack.parts.items() if not part.is_alive]
        if gone:
            raise StackError(
                f"of the stack in {endpoints}, {' and '.join(gone)} ended: start it again with `python -m integration.stack start`"
            )
        stack.is_attached = True
        return stack

    def bring_up(self, *, owned: bool, say: Callable[[str], None]) -> None:
        """Start every part, each as soon as what it needs is ready, and wait for all."""
        if any(part.is_alive for part in self.parts.values()):
            raise StackError(f"a stack already runs in {self.places.run}")
        runs.write_down(self.places, owned=owned)
        try:
            for part in self.parts.values():
                if isinstance(part, TaskManager):
                    # It looks for a JobManager when it starts, and takes its time before it looks again.
                    self.jobmanager.await_ready()
                say(f"starting {part.label}")
                part.launch()
            for part in self.parts.values():
                part.await_ready()
        except BaseException:
            self.stop()
            raise
        self.endpoints_file.write_text(json.dumps(self.endpoints(), indent=2) + "\n", "utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.is_attached:
            self.stop()

    def stop(self) -> None:
        """End every process of this stack, also gateways that were added to it; files of the run stay."""
        runs.end(self.places)
        self.endpoints_file.unlink(missing_ok=True)

    def add_gateway(self, label: str, options: Mapping[str, str] | None = None) -> SqlGateway:
        """One more gateway of the same cluster, started and ready; who asked for it stops it."""
        (port,) = free_ports(1)
        gateway = SqlGateway(self.jobmanager.cluster, port, label, options)
        gateway.start()
        return gateway

    def part(self, label: str, kind: type[P]) -> P:
        """A part of the stack. Raises: StackError when the stack was started without it."""
        found = self.parts.get(label)
        if not isinstance(found, kind):
            raise StackError(f"this stack has no {label}; it was started with {', '.join(sorted(self.shape.parts))}")
        return found

    @property
    def jobmanager(self) -> JobManager:
        """Flink's JobManager."""
        return self.part(JobManager.name, JobManager)

    @property
    def taskmanager(self) -> TaskManager:
        """Flink's TaskManager."""
        return self.part(TaskManager.name, TaskManager)

    @property
    def gateway(self) -> SqlGateway:
        """Flink's SQL Gateway."""
        return self.part(SqlGateway.name, SqlGateway)

    @property
    def kafka(self) -> KafkaBroker:
        """The Kafka broker."""
        return self.part(KafkaBroker.name, KafkaBroker)

    @property
    def gateway_url(self) -> str:
        """The gateway's REST address, without a version."""
        return self.gateway.url

    @property
    def rest_url(self) -> str:
        """The JobManager's REST address."""
        return self.jobmanager.url

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address for clients."""
        return self.kafka.bootstrap_servers

    @property
    def savepoint_dir(self) -> str:
        """Where savepoints go by default, as a file:// URI."""
        return self.places.make("savepoints").as_uri()

    @property
    def checkpoint_dir(self) -> str:
        """Where checkpoints go by default, as a file:// URI."""
        return self.places.make("checkpoints").as_uri()

    @property
    def plans_dir(self) -> Path:
        """A folder that the gateway and the tests both read and write; `.as_uri()` is its name in SQL."""
        return self.places.make("plans")

    @property
    def endpoints_file(self) -> Path:
        """What another process attaches to."""
        return self.places.run / ENDPOINTS

    def logs(self) -> dict[str, Path]:
        """The log file of each part, by its label."""
        return {file.stem: file for file in sorted(self.places.make("log").glob("*.log"))}

    def endpoints(self) -> dict[str, Any]:
        """What endpoints.json says: addresses for people and scripts, and what `attach` needs."""
        has = self.shape.parts.__contains__
        return {
            "endpoints_version": ENDPOINTS_VERSION,
            "gateway_url": self.gateway_url if has("gateway") else None,
            "rest_url": self.rest_url if has("flink") else None,
            "bootstrap_servers": self.bootstrap_servers if has("kafka") else None,
            "savepoint_dir": self.savepoint_dir,
            "checkpoint_dir": self.checkpoint_dir,
            "plans_dir": str(self.plans_dir),
            "run_dir": str(self.places.run),
            "parts": sorted(self.shape.parts),
            "ports": dict(self.shape.ports),
            "slots": self.shape.slots,
            "flink_options": dict(self.shape.flink_options),
            "kafka_options": dict(self.shape.kafka_options),
        }


def make_parts(shape: Shape, places: Places) -> dict[str, Part]:
    """The parts of a stack, none started, in the order in which they start."""
    port = shape.ports
    made: list[Part] = []
    if "kafka" in shape.parts:
        made.append(KafkaBroker(places, port["kafka"], port["controller"], shape.kafka_options))
    if "flink" in shape.parts:
        cluster = Cluster(places, port["rest"], port["rpc"], port["blob"], shape.slots, shape.flink_options)
        gateways = [SqlGateway(cluster, port["gateway"])] if "gateway" in shape.parts else []
        made = [JobManager(cluster), *made, TaskManager(cluster), *gateways]
    return {part.label: part for part in made}


def missing_parts(parts: Iterable[str] = PARTS) -> list[str]:
    """Why these parts can't run here: one sentence each that says what to install. Raises: StackError for a part that does not exist."""
    chosen = set(parts)
    unknown = sorted(chosen - set(PARTS))
    if unknown or not chosen:
        raise StackError(f"a stack is made of {', '.join(PARTS)}, not of {', '.join(unknown) or 'nothing'}")
    if "gateway" in chosen and "flink" not in chosen:
        raise StackError("a gateway needs flink beside it")
    return [*missing_java(), *fetch.missing_tools(chosen)]
