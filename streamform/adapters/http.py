"""JSON over HTTP to one service, with every way in which that goes wrong mapped to an error of ours.

A GET is repeated. Anything else is sent once: when its answer does not come, what it did is unknown, unless it never left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import requests
from msgspec import Struct

from streamform.adapters.environment import without_credentials
from streamform.errors import OutcomeUnknown, StreamformError, Unreachable

CONNECT_TIMEOUT_S = 4.0
READ_TIMEOUT_S = 30.0
GET_TRIES = 4
RETRY_S = 0.15
"""The first pause before a GET is repeated; each further one is twice as long."""
GATEWAY_ERRORS = frozenset({502, 503, 504})
"""Answers of a proxy, or of a server that is just starting."""
MAX_REDIRECTS = 3

Method = Literal["GET", "POST", "PATCH", "DELETE"]


class Reply(Struct, frozen=True):
    """An answer in the service's protocol, whatever its status."""

    status: int
    document: Any

    @property
    def is_ok(self) -> bool:
        return self.status < 400

    @property
    def errors(self) -> list[str]:
        """What the service said went wrong."""
        found = self.document.get("errors") if isinstance(self.document, dict) else None
        return [str(item) for item in found] if isinstance(found, list) else []


class HttpService:
    """One service at one address. A path prefix of the address is kept; a redirect to another host is refused."""

    def __init__(self, what: str, address: str, field: str) -> None:
        self.what, self.field = what, field
        self.address = address.rstrip("/")
        self.shown = without_credentials(self.address)
        self.session = requests.Session()

    def get(self, path: str, *, timeout_s: float = READ_TIMEOUT_S, tries: int = GET_TRIES) -> Reply:
        """The answer to a question. Raises: Unreachable when there is none after several tries."""
        for attempt in range(1, tries + 1):
            try:
                reply = self._send("GET", path, None, timeout_s)
                if reply.status not in GATEWAY_ERRORS or attempt == tries:
                    return reply
            except _Unanswered as failure:
                if attempt == tries or not failure.can_pass:
                    raise failure.error(self, is_question=True) from None
            time.sleep(RETRY_S * 2 ** (attempt - 1) * random.uniform(0.7, 1.3))  # noqa: S311 - spread, not secrecy
        raise AssertionError("the last try returns or raises")

    def send(self, method: Method, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = READ_TIMEOUT_S) -> Reply:
        """The answer to an order, which is sent once.

        Raises: Unreachable when it was not taken, OutcomeUnknown when nobody can say.
        """
        try:
            reply = self._send(method, path, body or {}, timeout_s)
        except _Unanswered as failure:
            raise failure.error(self, is_question=False) from None
        if reply.status in GATEWAY_ERRORS and not reply.errors:
            raise OutcomeUnknown(f"{self._named} answered {reply.status}; it is not known whether it did what it was told", self._help)
        return reply

    def _send(self, method: Method, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Reply:
        url = f"{self.address}{path}"
        for _ in range(MAX_REDIRECTS):
            try:
                response = self.session.request(
                    method,
                    url,
                    json=body,
                    timeout=(CONNECT_TIMEOUT_S, timeout_s),
                    allow_redirects=False,
                    headers={"Accept": "application/json"},
                )
                text = response.text
            except requests.RequestException as error:
                raise _unanswered(error) from None
            if not response.is_redirect:
                return self._reply(response.status_code, text, response.headers.get("Content-Type", ""))
            url = self._redirected(url, response.headers["Location"])
        raise _Unanswered("it redirects in a circle", sent=False, can_pass=False)

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if urlsplit(target)[:2] != urlsplit(url)[:2]:
            raise _Unanswered(f"it redirects to {without_credentials(target)}", sent=False, can_pass=False)
        return target

    def _reply(self, status: int, text: str, content_type: str) -> Reply:
        if status in (401, 403, 407):
            raise _Unanswered(f"it refuses access (status {status})", sent=False, can_pass=False)
        if not text.strip() and status in (200, 202, 204):
            return Reply(status, {})
        try:
            return Reply(status, _parsed(text))
        except ValueError:
            if status in GATEWAY_ERRORS:
                return Reply(status, {})
            kind = "HTML" if "html" in content_type.lower() or text.lstrip()[:1] == "<" else "something that is not JSON"
            raise _Unanswered(f"it answers {kind}, which is not the protocol of {self.what}", sent=True, can_pass=False) from None

    @property
    def _named(self) -> str:
        return f"{self.what} at {self.shown}"

    @property
    def _help(self) -> str:
        return f"check {self.field} and that {self.what} runs"

    def close(self) -> None:
        """Release connections."""
        self.session.close()


class _Unanswered(Exception):
    """A request without an answer in the service's protocol."""

    def __init__(self, why: str, *, sent: bool, can_pass: bool = True) -> None:
        super().__init__(why)
        self.why, self.sent, self.can_pass = why, sent, can_pass

    def error(self, service: HttpService, *, is_question: bool) -> StreamformError:
        """The error that a command reports."""
        if self.sent and not is_question and self.can_pass:
            return OutcomeUnknown(f"{service._named} took a request and gave no answer: {self.why}", service._help)
        return Unreachable(f"{service._named} can't be used: {self.why}", service._help)


def _parsed(text: str) -> Any:
    import json

    document = json.loads(text)
    if not isinstance(document, (dict, list)):
        raise ValueError(text)
    return document


def _unanswered(error: requests.RequestException) -> _Unanswered:
    """What a failure of the client library means: whether the request can have arrived, and whether it may pass."""
    if isinstance(error, requests.exceptions.SSLError):
        return _Unanswered(f"TLS failed: {_cause(error)}", sent=False, can_pass=False)
    if isinstance(error, (requests.exceptions.ConnectTimeout, requests.exceptions.ProxyError)):
        return _Unanswered("no connection in time" if isinstance(error, requests.exceptions.ConnectTimeout) else _cause(error), sent=False)
    if isinstance(error, requests.exceptions.Timeout):
        return _Unanswered("no answer in time", sent=True)
    if isinstance(error, requests.exceptions.ConnectionError):
        cause = _cause(error)
        never_sent = "refused" in cause or "resolve" in cause or "not known" in cause or "unreachable" in cause or "No route" in cause
        return _Unanswered(cause, sent=not never_sent)
    if isinstance(error, (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)):
        return _Unanswered("the answer broke off", sent=True)
    return _Unanswered(f"the address is not usable: {_cause(error)}", sent=False, can_pass=False)


_KNOWN_CAUSES = (
    ("Connection refused", "the connection is refused"),
    ("Name or service not known", "the host name is not known"),
    ("Temporary failure in name resolution", "the host name can't be resolved"),
    ("nodename nor servname", "the host name is not known"),
    ("No route to host", "No route to the host"),
    ("Network is unreachable", "the network is unreachable"),
    ("Connection reset", "the connection broke off"),
    ("Remote end closed", "the connection was closed"),
    ("Connection aborted", "the connection broke off"),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS; write http://"),
    ("CERTIFICATE_VERIFY_FAILED", "the certificate is not trusted"),
)


def _cause(error: BaseException) -> str:
    text = str(error)
    return next((shown for mark, shown in _KNOWN_CAUSES if mark in text), type(error).__name__)
