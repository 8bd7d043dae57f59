"""HTTP: what is repeated and what is sent once, and the one error that each failure becomes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from streamform.adapters import http
from streamform.adapters.http import HttpService
from streamform.errors import OutcomeUnknown, StreamformError, Unreachable
from tests.adapters.service import BROKEN, HTML, Answer, serving

OK = Answer({"status": "fine"})
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_S", 0.001)


def service(address: str) -> HttpService:
    return HttpService("the SQL Gateway", address, "flink.gateway of target `prod`")


@pytest.mark.parametrize("trouble", [Answer({}, 503), Answer({}, 502), BROKEN])
def test_a_question_is_asked_again(trouble: Answer) -> None:
    with serving({"GET /info": [trouble, trouble, OK]}) as server:
        assert service(server.url).get("/info").document == {"status": "fine"}


def test_a_question_is_given_up_in_the_end() -> None:
    with serving({"GET /info": BROKEN}) as server, pytest.raises(Unreachable, match="the connection"):
        service(server.url).get("/info")
    assert len(server.asked) == http.GET_TRIES


def test_an_order_whose_answer_is_lost_is_sent_once_and_its_outcome_is_unknown() -> None:
    with serving({"POST /statements": BROKEN}) as server, pytest.raises(OutcomeUnknown, match="gave no answer"):
        service(server.url).send("POST", "/statements", {})
    assert server.paths() == ["/statements"]


def test_an_order_that_a_proxy_did_not_see_through_has_an_unknown_outcome() -> None:
    with serving({"POST /statements": Answer(text="bad gateway", status=502)}) as server, pytest.raises(OutcomeUnknown, match="502"):
        service(server.url).send("POST", "/statements", {})


def test_an_order_to_nobody_was_not_taken() -> None:
    with pytest.raises(Unreachable, match="the connection is refused") as caught:
        service(NOBODY).send("POST", "/statements", {})
    assert caught.value.exit_code == 2


def test_an_order_that_is_answered_too_late_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> None:
        raise requests.exceptions.ReadTimeout

    waiting = service(NOBODY)
    monkeypatch.setattr(waiting.session, "request", late)
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        waiting.send("POST", "/statements", {})


@pytest.mark.parametrize("status", [200, 404, 500])
def test_html_is_not_the_protocol(status: int) -> None:
    page = Answer(text=HTML.text, headers=HTML.headers, status=status)
    with serving({"GET /info": page}) as server, pytest.raises(Unreachable, match="it answers HTML, which is not the protocol") as caught:
        service(server.url).get("/info")
    assert caught.value.help == "check flink.gateway of target `prod` and that the SQL Gateway runs"


def test_text_is_not_the_protocol() -> None:
    with serving({"GET /info": Answer(text='"hello"')}) as server, pytest.raises(Unreachable, match="something that is not JSON"):
        service(server.url).get("/info")


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_service_that_refuses_access_is_not_asked_again(status: int) -> None:
    with serving({"GET /info": Answer({}, status)}) as server, pytest.raises(Unreachable, match=f"refuses access \\(status {status}\\)"):
        service(server.url).get("/info")
    assert len(server.asked) == 1


def test_an_answer_without_content_is_empty() -> None:
    with serving({"PATCH /jobs/a": Answer(text="", status=202)}) as server:
        assert service(server.url).send("PATCH", "/jobs/a").document == {}


def test_a_redirect_within_the_host_is_followed() -> None:
    moved = Answer(text="", status=307, headers={"Location": "/flink/info"})
    with serving({"GET /info": moved, "GET /flink/info": OK}) as server:
        assert service(server.url).get("/info").is_ok


def test_a_redirect_to_another_host_is_refused() -> None:
    moved = Answer(text="", status=307, headers={"Location": "http://user:secret@elsewhere.invalid/info"})
    with serving({"GET /info": moved}) as server, pytest.raises(Unreachable, match=r"it redirects to http://elsewhere\.invalid/info"):
        service(server.url).get("/info")


def test_a_redirect_in_a_circle_ends() -> None:
    moved = Answer(text="", status=307, headers={"Location": "/info"})
    with serving({"GET /info": moved}) as server, pytest.raises(Unreachable, match="in a circle"):
        service(server.url).get("/info")


def test_a_path_in_the_address_stays_in_front() -> None:
    with serving({"GET /flink/info": OK}) as server:
        assert service(f"{server.url}/flink/").get("/info").is_ok


def test_credentials_of_an_address_are_in_no_error() -> None:
    with pytest.raises(Unreachable) as caught:
        service("http://somebody:secret@127.0.0.1:9").get("/info")
    assert "http://127.0.0.1:9" in caught.value.message
    assert "secret" not in caught.value.message


def test_what_a_service_says_went_wrong_is_read() -> None:
    with serving({"GET /info": Answer({"errors": ["Internal server error.", "the reason"]}, 500)}) as server:
        reply = service(server.url).get("/info")
    assert (reply.is_ok, reply.errors) == (False, ["Internal server error.", "the reason"])


def failures() -> Iterator[type[requests.RequestException]]:
    """Every exception of the client library."""
    for value in vars(requests.exceptions).values():
        if isinstance(value, type) and issubclass(value, requests.RequestException):
            yield value


@pytest.mark.parametrize("failure", list(failures()), ids=lambda failure: failure.__name__)
def test_every_failure_of_the_client_library_is_an_error_of_ours(
    failure: type[requests.RequestException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise failure.__new__(failure)

    failing = service("http://somebody:secret@127.0.0.1:9")
    monkeypatch.setattr(failing.session, "request", fails)
    for ask in (lambda: failing.get("/info"), lambda: failing.send("POST", "/statements")):
        with pytest.raises(StreamformError) as caught:
            ask()
        assert isinstance(caught.value, (Unreachable, OutcomeUnknown))
        assert "secret" not in caught.value.message
