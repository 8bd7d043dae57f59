"""Brings the jars to this machine once: Flink from a Python package, the others from Maven, into a cache folder.

Each bundle is made beside its place and renamed, so a folder that exists is whole. Two processes that need the same
bundle at once wait for each other; one that was interrupted begins that bundle again and keeps the others.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from integration.stack import versions
from integration.stack.errors import StackError

FETCH_S = 1200.0
MAVEN_GOAL = f"org.apache.maven.plugins:maven-dependency-plugin:{versions.MAVEN_DEPENDENCY_PLUGIN}:copy-dependencies"
WHEEL = "apache-flink-libraries"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One Maven dependency."""

    group: str
    name: str
    version: str
    is_alone: bool = False
    """Without what it depends on: either its jar holds everything, or Flink does."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jars that are fetched together."""

    name: str
    """Its folder in the cache; it holds the version, so another version is another folder."""
    jars: tuple[str, ...]
    """Patterns, each of which must match a file."""
    classes: tuple[str, ...]
    """Main classes and factories, each of which must be in one of the jars."""
    artifacts: tuple[Artifact, ...] = ()
    """What Maven fetches; nothing for the Python package."""


FLINK = Bundle(
    name=f"flink-{versions.FLINK}",
    jars=(
        f"flink-dist-{versions.FLINK}.jar",
        f"flink-json-{versions.FLINK}.jar",
        f"flink-python-{versions.FLINK}.jar",
        f"flink-table-api-java-uber-{versions.FLINK}.jar",
        f"flink-table-planner-loader-{versions.FLINK}.jar",
        f"flink-table-runtime-{versions.FLINK}.jar",
        "log4j-core-*.jar",
        "log4j-slf4j-impl-*.jar",
    ),
    classes=(
        "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
        "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
    ),
)
CONNECTOR = Bundle(
    name=f"flink-sql-connector-kafka-{versions.KAFKA_CONNECTOR}",
    jars=(f"flink-sql-connector-kafka-{versions.KAFKA_CONNECTOR}.jar",),
    classes=("org.apache.flink.streaming.connectors.kafka.table.UpsertKafkaDynamicTableFactory",),
    artifacts=(Artifact("org.apache.flink", "flink-sql-connector-kafka", versions.KAFKA_CONNECTOR, is_alone=True),),
)
GATEWAY = Bundle(
    name=f"flink-sql-gateway-{versions.FLINK}",
    jars=(f"flink-sql-gateway-{versions.FLINK}.jar",),
    classes=("org.apache.flink.table.gateway.SqlGateway",),
    artifacts=(Artifact("org.apache.flink", "flink-sql-gateway", versions.FLINK, is_alone=True),),
)
KAFKA = Bundle(
    name=f"kafka-{versions.KAFKA_SCALA}-{versions.KAFKA}",
    jars=(
        f"kafka_{versions.KAFKA_SCALA}-{versions.KAFKA}.jar",
        f"kafka-server-{versions.KAFKA}.jar",
        f"log4j-slf4j-impl-{versions.KAFKA_LOG4J}.jar",
    ),
    classes=("kafka.Kafka", "kafka.tools.StorageTool"),
    artifacts=(
        Artifact("org.apache.kafka", f"kafka_{versions.KAFKA_SCALA}", versions.KAFKA),
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", versions.KAFKA_LOG4J),
    ),
)
NEEDS: Mapping[str, tuple[Bundle, ...]] = {
    "flink": (FLINK, CONNECTOR),
    "gateway": (FLINK, CONNECTOR, GATEWAY),
    "kafka": (KAFKA,),
}
"""Bundles that each part of a stack runs on."""


def cache_folder() -> Path:
    """Where bundles lie: $STREAMFORM_STACK_CACHE, else a folder of the user's cache."""
    configured = os.environ.get("STREAMFORM_STACK_CACHE")
    if configured:
        return Path(configured).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamform" / "stack"


def bundles(parts: Iterable[str]) -> tuple[Bundle, ...]:
    """The bundles of these parts, each once."""
    return tuple(dict.fromkeys(bundle for part in sorted(parts) for bundle in NEEDS[part]))


def is_cached(bundle: Bundle) -> bool:
    """Whether every jar that the bundle must have is in the cache."""
    return not _absent_jars(bundle, cache_folder() / bundle.name)


def jars(bundle: Bundle) -> list[Path]:
    """The bundle's jars in the cache, in name order."""
    return sorted((cache_folder() / bundle.name).glob("*.jar"))


def missing_tools(parts: Iterable[str]) -> list[str]:
    """What to install before these parts can be fetched: one sentence each, nothing when the cache holds them."""
    absent = [bundle for bundle in bundles(parts) if not is_cached(bundle)]
    sentences = []
    if any(bundle.artifacts for bundle in absent) and shutil.which("mvn") is None:
        sentences.append("Apache Maven fetches the jars of the SQL Gateway and Kafka: install the system's package maven")
    if any(not bundle.artifacts for bundle in absent) and find_spec("pip") is None:
        sentences.append("pip fetches the jars of Flink: run this Python's ensurepip")
    return sentences


def fetch(parts: Iterable[str], *, say: Callable[[str], None] = lambda text: None) -> None:
    """Bring every bundle of these parts into the cache. Raises: StackError when a tool is missing or a registry refuses."""
    wanted = bundles(parts)
    missing = missing_tools(parts)
    if missing:
        raise StackError("; ".join(missing))
    for bundle in wanted:
        if not is_cached(bundle):
            fetch_bundle(bundle, say)


def fetch_bundle(bundle: Bundle, say: Callable[[str], None]) -> None:
    """Bring one bundle into the cache, unless another process did so while this one waited."""
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    place = root / bundle.name
    with _alone(root / f"{bundle.name}.lock"):
        if is_cached(bundle):
            return
        for leftover in root.glob(f".{bundle.name}-*"):
            shutil.rmtree(leftover)
        made = Path(tempfile.mkdtemp(prefix=f".{bundle.name}-", dir=root))
        try:
            say(f"fetching {bundle.name}")
            (fetch_with_maven if bundle.artifacts else fetch_wheel)(bundle, made)
            check_bundle(bundle, made)
            if place.exists():
                shutil.rmtree(place)
            made.chmod(0o755)
            made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def fetch_wheel(bundle: Bundle, folder: Path) -> None:
    """Put the jars of Flink's Python package into the folder; nothing of it is installed."""
    downloads = folder / "wheel"
    options = ("--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--quiet", "--dest", str(downloads))
    _run([sys.executable, "-m", "pip", "download", *options, f"{WHEEL}=={versions.FLINK}"])
    (wheel,) = downloads.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("pyflink/lib/") or name == f"pyflink/opt/flink-python-{versions.FLINK}.jar":
                _extract(archive, name, folder)
    shutil.rmtree(downloads)


def _extract(archive: zipfile.ZipFile, name: str, folder: Path) -> None:
    if name.endswith(".jar"):
        with archive.open(name) as packed, (folder / Path(name).name).open("wb") as jar:
            shutil.copyfileobj(packed, jar, 1 << 20)


def fetch_with_maven(bundle: Bundle, folder: Path) -> None:
    """Put the bundle's artifacts and what they depend on into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(pom_text(bundle), "utf-8")
        _run(["mvn", "--quiet", "--batch-mode", "--file", str(pom), MAVEN_GOAL, f"-DoutputDirectory={folder}"])


def pom_text(bundle: Bundle) -> str:
    """A Maven project that depends on the bundle's artifacts and nothing else."""
    nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId><version>{a.version}</version>"
        f"{nothing_else if a.is_alone else ''}</dependency>"
        for a in bundle.artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>streamform.stack</groupId><artifactId>{bundle.name}</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def check_bundle(bundle: Bundle, folder: Path) -> None:
    """Raises: StackError when a jar or class that the bundle must have is not there."""
    absent = _absent_jars(bundle, folder) or _absent_classes(bundle, folder)
    if absent:
        raise StackError(
            f"what was fetched for {bundle.name} lacks {', '.join(absent)}; the versions in integration/stack/versions.py must exist and match"
        )


def _absent_jars(bundle: Bundle, folder: Path) -> list[str]:
    return [pattern for pattern in bundle.jars if not any(folder.glob(pattern))]


def _absent_classes(bundle: Bundle, folder: Path) -> list[str]:
    wanted = {f"{name.replace('.', '/')}.class": name for name in bundle.classes}
    for jar in folder.glob("*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for entry in wanted.keys() & set(archive.namelist()):
                del wanted[entry]
    return sorted(wanted.values())


def _run(command: list[str]) -> None:
    """Run a fetching command to its end. Raises: StackError with the end of what it said."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise StackError(
            f"`{command[0]}` had not fetched everything after {FETCH_S:.0f} s; run it again, what is complete is kept"
        ) from error
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise StackError("\n".join([f"`{' '.join(command[:4])} ..` failed:", *said[-12:]]))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file; the system lets go of it when the process ends, however it ends."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
