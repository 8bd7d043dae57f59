"""The SQL Gateway over REST: sessions that are thrown away, one statement an operation.

A session that the gateway forgot is opened anew and its definitions are made again; a statement that starts a job is
sent once, and when its fate is unknown that is what is raised.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from streamform.adapters.http import HttpService, Reply
from streamform.backends.flink.cause import advice, root_cause
from streamform.errors import JobFailed, OutcomeUnknown, Refused, StreamformError, Unreachable

KNOWN_VERSIONS = (4, 3, 2)
"""Versions of the protocol that this client speaks, newest first."""
STATEMENT_TIMEOUT_S = 180.0
"""How long a statement may take; the first one of a fresh gateway loads the planner."""
POLL_S, MAX_POLL_S = 0.02, 1.0
TERMINAL = frozenset({"FINISHED", "ERROR", "CANCELED", "CLOSED", "TIMEOUT"})
REOPENINGS = 3

_NO_SESSION = re.compile(r"Session '[^']*' does not exist")


class StatementRefused(JobFailed):
    """The gateway says that a statement is wrong. `stack` is everything that it said."""

    def __init__(self, message: str, stack: str, help: str | None = None) -> None:
        super().__init__(message, help)
        self.stack = stack


class _SessionLost(Exception):
    """The gateway does not know the session, so the statement was not carried out."""


class StatementResult(Struct, frozen=True):
    """What a statement returned."""

    job_id: str | None
    rows: tuple[tuple[Any, ...], ...]


class Gateway:
    """One gateway."""

    def __init__(self, http: HttpService) -> None:
        self.http = http
        self._prefix: str | None = None

    @property
    def prefix(self) -> str:
        """The path of the newest version that both sides speak. Raises: Refused where there is none, Unreachable."""
        if self._prefix is None:
            self._prefix = f"/v{self._negotiate()}"
        return self._prefix

    def _negotiate(self) -> int:
        reply = self.http.get("/api_versions")
        offered = reply.document.get("versions") if isinstance(reply.document, dict) else None
        if not reply.is_ok or not isinstance(offered, list):
            raise Unreachable(
                f"{self.http.what} at {self.http.shown} does not name the versions of its protocol, so it is no SQL Gateway",
                f"check {self.http.field}",
            )
        numbers = {int(v[1:]) for v in offered if isinstance(v, str) and v[1:].isdigit()}
        found = next((version for version in KNOWN_VERSIONS if version in numbers), None)
        if found is None:
            raise Refused(
                f"{self.http.what} at {self.http.shown} speaks {', '.join(map(str, offered)) or 'no version'} of its protocol; V2 is needed",
                "use Flink 1.17 or newer",
            )
        return found

    def session(self, properties: Mapping[str, str]) -> GatewaySession:
        """A fresh session; it is opened by its first statement."""
        return GatewaySession(self, properties)


class GatewaySession:
    """One session, which may be opened more than once: what was defined in it is defined again."""

    def __init__(self, gateway: Gateway, properties: Mapping[str, str]) -> None:
        self.gateway, self.http = gateway, gateway.http
        self.properties = {"table.dml-sync": "false", **properties}
        self.handle: str | None = None
        self.definitions: list[str] = []
        self.clean: Callable[[str], str] = lambda text: text
        """Takes secrets out of what the gateway says."""

    # sessions

    def opened(self) -> str:
        """The session's path, opened when it is not. Raises: Unreachable."""
        if self.handle is None:
            reply = self.http.send("POST", f"{self.gateway.prefix}/sessions", {"properties": self.properties})
            handle = reply.document.get("sessionHandle") if isinstance(reply.document, dict) else None
            if not reply.is_ok or not isinstance(handle, str):
                raise self.refused("opening a session", reply)
            self.handle = handle
            for statement in self.definitions:
                self._configure(statement)
        return f"{self.gateway.prefix}/sessions/{self.handle}"

    def settings(self) -> dict[str, str]:
        """Every setting that is in force, the gateway's own among them."""
        reply = self._surviving(lambda: self._checked(self.http.get(self.opened()), "a session"))
        found = reply.document.get("properties", {})
        return dict(found) if isinstance(found, dict) else {}

    def close(self) -> None:
        """End the session; jobs go on."""
        if self.handle is None:
            return
        path, self.handle = f"{self.gateway.prefix}/sessions/{self.handle}", None
        try:
            self.http.send("DELETE", path, timeout_s=5)
        except StreamformError:
            return

    def _surviving(self, act: Callable[[], Reply]) -> Reply:
        """Do something that may be repeated when the session is gone."""
        for _ in range(REOPENINGS):
            try:
                return act()
            except _SessionLost:
                self.handle = None
        raise Unreachable(
            f"{self.http.what} at {self.http.shown} loses its sessions", "check that it is one process, or that sessions are sticky"
        )

    # statements

    def define(self, statement: str) -> None:
        """Make a table or view; it is made again when the session has to be. Raises: StatementRefused, Unreachable."""
        self._surviving(lambda: self._configure(statement))
        self.definitions.append(statement)

    def _configure(self, statement: str) -> Reply:
        path = f"{self.opened()}/configure-session"
        return self._checked(self.http.send("POST", path, {"statement": statement}, timeout_s=STATEMENT_TIMEOUT_S), statement)

    def query(self, statement: str, config: Mapping[str, str] | None = None) -> StatementResult:
        """Run a statement that may be run twice. Raises: StatementRefused, Unreachable."""
        for _ in range(REOPENINGS):
            try:
                return self._finished(self._submitted(statement, config or {}), statement)
            except _SessionLost:
                self.handle = None
        raise Unreachable(
            f"{self.http.what} at {self.http.shown} loses its sessions", "check that it is one process, or that sessions are sticky"
        )

    def start(self, statement: str, config: Mapping[str, str], sent: Callable[[], None]) -> StatementResult:
        """Run a statement that starts a job; it is carried out at most once.

        `sent` is called once the gateway has taken it. Raises: StatementRefused, Unreachable when it was not taken,
        OutcomeUnknown when it was and nobody can say what became of it.
        """
        try:
            operation = self._submitted(statement, config)
        except _SessionLost:
            self.handle = None
            operation = self._submitted(statement, config)
        sent()
        try:
            return self._finished(operation, statement)
        except (_SessionLost, Unreachable) as error:
            why = "it lost the session" if isinstance(error, _SessionLost) else error.message
            raise OutcomeUnknown(
                f"{self.http.what} at {self.http.shown} took `{_named(statement)}` and its outcome is not known: {why}",
                "run the command again; it finds out",
            ) from None

    def _submitted(self, statement: str, config: Mapping[str, str]) -> str:
        """The path of the operation that runs a statement."""
        path = self.opened()
        body = {"statement": statement, "executionConfig": dict(config)}
        reply = self._checked(self.http.send("POST", f"{path}/statements", body, timeout_s=STATEMENT_TIMEOUT_S), statement)
        return f"{path}/operations/{reply.document['operationHandle']}"

    def _finished(self, operation: str, statement: str) -> StatementResult:
        """Wait until an operation is over, and read what it returned."""
        deadline, pause = time.monotonic() + STATEMENT_TIMEOUT_S, POLL_S
        while (status := self._checked(self.http.get(f"{operation}/status"), statement).document.get("status")) not in TERMINAL:
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{self.http.what} at {self.http.shown} did not finish `{_named(statement)}` within {STATEMENT_TIMEOUT_S:.0f} s"
                )
            time.sleep(pause)
            pause = min(MAX_POLL_S, pause * 1.4)
        if status in ("CANCELED", "CLOSED", "TIMEOUT"):
            raise StatementRefused(f"`{_named(statement)}` was ended by the gateway ({status.lower()})", status)
        result = self._pages(operation, statement, deadline)
        self._close_operation(operation)
        return result

    def _pages(self, operation: str, statement: str, deadline: float) -> StatementResult:
        job_id: str | None = None
        rows: list[tuple[Any, ...]] = []
        token, pause = 0, POLL_S
        while time.monotonic() < deadline:
            page = self._checked(self.http.get(f"{operation}/result/{token}?rowFormat=JSON"), statement).document
            job_id = job_id or page.get("jobID")
            rows += [tuple(item["fields"]) for item in (page.get("results") or {}).get("data", [])]
            if page.get("resultType") == "EOS" or not page.get("nextResultUri"):
                return StatementResult(job_id, tuple(rows))
            if page["resultType"] == "NOT_READY":
                time.sleep(pause)
                pause = min(MAX_POLL_S, pause * 1.4)
                continue
            token += 1
        raise Unreachable(f"{self.http.what} at {self.http.shown} did not hand out the result of `{_named(statement)}` in time")

    def _close_operation(self, operation: str) -> None:
        try:
            self.http.send("DELETE", f"{operation}/close", timeout_s=5)
        except StreamformError:
            return

    def _checked(self, reply: Reply, statement: str) -> Reply:
        if reply.is_ok and isinstance(reply.document, dict):
            return reply
        if any(_NO_SESSION.search(text) for text in reply.errors):
            raise _SessionLost
        raise self.refused(f"`{_named(statement)}`", reply)

    def refused(self, what: str, reply: Reply) -> StreamformError:
        """The error that an answer of the gateway stands for."""
        said = reply.errors
        if not said:
            return Unreachable(f"{self.http.what} at {self.http.shown} answered {reply.status} to {what}", f"check {self.http.field}")
        stack = said[-1]
        cause = self.clean(root_cause(stack))
        return StatementRefused(f"Flink refuses {what}: {cause}", stack, advice(stack))


def _named(statement: str) -> str:
    """A statement's first words."""
    first = statement.split("\n", 1)[0]
    return first if len(first) <= 80 else first[:77] + ".."
