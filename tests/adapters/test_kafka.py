"""Kafka, as the deploying side asks it: brokers that are not there or are something else are one error, soon."""

from __future__ import annotations

import pytest

from streamform.adapters import kafka
from streamform.adapters.kafka import missing_topics
from streamform.errors import Unreachable
from tests.adapters.service import HTML, serving


@pytest.mark.parametrize(
    ("servers", "cause"),
    [
        ("127.0.0.1:9", "connection refused"),
        ("127.0.0.1:9,127.0.0.1:10", "connection refused"),
        ("127.0.0.1:many", "the address is not host:port"),
        ("", "no server is named"),
    ],
)
def test_brokers_that_are_not_there_are_one_error(servers: str, cause: str) -> None:
    with pytest.raises(Unreachable, match=f"can't be used: {cause}") as caught:
        missing_topics(servers, ["orders"])
    assert caught.value.help == "check kafka.bootstrap_servers and that the brokers run"


def test_credentials_are_in_no_error() -> None:
    with pytest.raises(Unreachable) as caught:
        missing_topics("somebody:secret@127.0.0.1:9", ["orders"])
    assert "secret" not in caught.value.message


def test_another_service_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "ANSWER_TIMEOUT_S", 1.0)
    with serving({"GET /": HTML}) as server, pytest.raises(Unreachable, match="can't be used"):
        missing_topics(server.url.removeprefix("http://"), ["orders"])


def test_without_topics_nobody_is_asked() -> None:
    assert missing_topics("127.0.0.1:9", []) == []
