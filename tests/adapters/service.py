"""A service over HTTP on this machine that answers what a test wrote down, and keeps what it was asked."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; without a document the connection is closed instead."""

    document: Any = None
    status: int = 200
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: bool = False


BROKEN = Answer(breaks=True)
HTML = Answer(text="<html>a proxy's page</html>", headers={"Content-Type": "text/html"})


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    body: Any


class Service(http.server.ThreadingHTTPServer):
    """Answers by method and path, with a query where one is written down; the last answer of a list is given again and again."""

    daemon_threads = True

    def __init__(self, answers: Mapping[str, Answer | list[Answer]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = {key: list(value) if isinstance(value, list) else [value] for key, value in answers.items()}
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def paths(self, method: str = "POST") -> list[str]:
        """The paths of every request with this method, in order."""
        return [one.path for one in self.asked if one.method == method]

    def answer(self, method: str, path: str) -> Answer:
        """The next answer; one that nobody wrote down is what Flink says about a path that it does not know."""
        found = next((self.answers[key] for key in (f"{method} {path}", f"{method} {path.split('?')[0]}") if key in self.answers), None)
        if found is None:
            return Answer({"errors": [f"Not found: {path}"]}, 404)
        return found.pop(0) if len(found) > 1 else found[0]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(Asked(self.command, self.path, json.loads(body) if body else None))
        answer = self.server.answer(self.command, self.path)
        if answer.breaks:
            self.close_connection = True
            return
        content = (json.dumps(answer.document) if answer.text is None else answer.text).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_PATCH = _do

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def serving(answers: Mapping[str, Answer | list[Answer]]) -> Iterator[Service]:
    """A service for the length of a block."""
    with Service(answers) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield service
        service.shutdown()
        thread.join()
