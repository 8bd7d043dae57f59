"""The SQL Gateway's protocol: versions, sessions that vanish, results in pages, Java stacks, and starts that are sent once."""

from __future__ import annotations

from typing import Any

import pytest

from streamform.adapters import gateway, http
from streamform.adapters.gateway import Gateway, GatewaySession, StatementRefused
from streamform.adapters.http import HttpService
from streamform.backends.flink.cause import redacted
from streamform.errors import OutcomeUnknown, Refused, Unreachable
from tests.adapters.service import BROKEN, HTML, Answer, Service, serving

STACK = """<Exception on server side:
org.apache.flink.table.gateway.api.utils.SqlGatewayException: Failed to fetchResults.
\tat org.apache.flink.table.gateway.service.SqlGatewayServiceImpl.fetchResults(SqlGatewayServiceImpl.java:91)
Caused by: org.apache.flink.table.api.ValidationException: Table 'x' with password = hunter22 and
'sasl.jaas.config' = 'org.Login username="u" password="p";' is wrong
\tat org.apache.flink.table.planner.X.y(X.java:1)
\t... 12 more

End of exception on server side>"""
LOST = Answer(
    {"errors": ["Internal server error.", "<Exception on server side:\n..SqlGatewayException: Session 'abc' does not exist.\n"]}, 500
)
OPENED = Answer({"sessionHandle": "s1"})
STARTED = Answer({"operationHandle": "o1"})
FINISHED = Answer({"status": "FINISHED"})
END = Answer({"resultType": "EOS", "results": {"data": []}})
VERSIONS = Answer({"versions": ["V1", "V2", "V3", "V4"]})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_S", 0.001)
    monkeypatch.setattr(gateway, "POLL_S", 0.001)


def page(*rows: tuple[Any, ...], job: str | None = None, following: int | None = None) -> Answer:
    data = [{"kind": "INSERT", "fields": list(row)} for row in rows]
    uri = None if following is None else f"/v4/sessions/s1/operations/o1/result/{following}"
    return Answer({"resultType": "PAYLOAD", "jobID": job, "results": {"data": data}, "nextResultUri": uri})


def answers(**more: Answer | list[Answer]) -> dict[str, Answer | list[Answer]]:
    """A gateway on which a statement ends at once without rows; single answers by a short name."""
    session = "/v4/sessions/s1"
    names = {
        "versions": "GET /api_versions",
        "open": "POST /v4/sessions",
        "define": f"POST {session}/configure-session",
        "state": f"POST {session}/statements",
        "status": f"GET {session}/operations/o1/status",
        "first": f"GET {session}/operations/o1/result/0",
        "second": f"GET {session}/operations/o1/result/1",
    }
    usual: dict[str, Answer | list[Answer]] = {
        "versions": VERSIONS,
        "open": OPENED,
        "define": Answer({}),
        "state": STARTED,
        "status": FINISHED,
    }
    chosen = {**usual, "first": END, **more}
    return {names[name]: answer for name, answer in chosen.items()}


def connect(server: Service, path: str = "") -> Gateway:
    return Gateway(HttpService("the SQL Gateway", f"{server.url}{path}", "flink.gateway of target `prod`"))


def opened(server: Service) -> GatewaySession:
    return connect(server).session({"table.local-time-zone": "UTC"})


@pytest.mark.parametrize(("offered", "prefix"), [(["V1", "V2", "V3", "V4"], "/v4"), (["V1", "V2"], "/v2"), (["V3", "V9"], "/v3")])
def test_the_newest_version_that_both_sides_speak_is_used(offered: list[str], prefix: str) -> None:
    with serving({"GET /api_versions": Answer({"versions": offered})}) as server:
        assert connect(server).prefix == prefix


def test_a_gateway_that_is_too_old_is_refused() -> None:
    with serving({"GET /api_versions": Answer({"versions": ["V1"]})}) as server, pytest.raises(Refused, match="speaks V1 of its protocol"):
        _ = connect(server).prefix


@pytest.mark.parametrize("answer", [Answer({"message": "hello"}), Answer({"errors": ["Not found."]}, 404), Answer(["V1"])])
def test_a_service_that_names_no_versions_is_no_gateway(answer: Answer) -> None:
    with serving({"GET /api_versions": answer}) as server, pytest.raises(Unreachable, match="so it is no SQL Gateway") as caught:
        _ = connect(server).prefix
    assert caught.value.help == "check flink.gateway of target `prod`"


def test_html_is_one_error() -> None:
    with serving({"GET /api_versions": HTML}) as server, pytest.raises(Unreachable, match="it answers HTML"):
        opened(server).query("SELECT 1")


def test_a_session_gets_its_settings_when_it_is_opened() -> None:
    with serving(answers()) as server:
        opened(server).query("SELECT 1")
    assert server.asked[1].body == {"properties": {"table.dml-sync": "false", "table.local-time-zone": "UTC"}}


def test_rows_are_gathered_over_pages_that_are_not_ready_at_first() -> None:
    waiting = Answer({"resultType": "NOT_READY", "nextResultUri": "/v4/sessions/s1/operations/o1/result/0"})
    with serving(answers(first=[waiting, waiting, page(("a",), following=1)], second=page(("b",)))) as server:
        assert opened(server).query("SELECT 1").rows == (("a",), ("b",))


def test_an_empty_page_is_not_the_end() -> None:
    with serving(answers(first=page(following=1), second=page(("b",)))) as server:
        assert opened(server).query("SELECT 1").rows == (("b",),)


def test_a_statement_is_waited_for() -> None:
    states = [Answer({"status": word}) for word in ("INITIALIZED", "PENDING", "RUNNING", "FINISHED")]
    with serving(answers(status=states)) as server:
        opened(server).query("SELECT 1")
    assert len([path for path in server.paths("GET") if path.endswith("/status")]) == 4


def test_a_started_job_has_its_id() -> None:
    with serving(answers(first=page(("ab12",), job="ab12", following=1), second=END)) as server:
        assert opened(server).start("EXECUTE PLAN 'p'", {"pipeline.name": "n"}, lambda: None).job_id == "ab12"
    (body,) = [one.body for one in server.asked if one.path.endswith("/statements")]
    assert body == {"statement": "EXECUTE PLAN 'p'", "executionConfig": {"pipeline.name": "n"}}


def test_a_refused_statement_says_the_innermost_cause_without_secrets() -> None:
    wrong = Answer({"errors": ["Internal server error.", STACK]}, 500)
    with serving(answers(status=Answer({"status": "ERROR"}), first=wrong)) as server:
        session = opened(server)
        session.clean = lambda text: redacted(text, {"PASSWORD": "hunter22"})
        with pytest.raises(StatementRefused) as caught:
            session.query("SELECT 1\nFROM x")
    assert caught.value.message.startswith("Flink refuses `SELECT 1`: Table 'x' with password = ")
    assert not [secret for secret in ("hunter22", '"p"', "SqlGatewayServiceImpl", "\tat ") if secret in caught.value.message]


def test_a_cause_that_is_known_comes_with_advice() -> None:
    stack = (
        "x\nCaused by: org.apache.flink.table.api.ValidationException: Could not find any factory for identifier 'kafka' that implements"
    )
    wrong = Answer({"errors": ["Internal server error.", stack]}, 500)
    with serving(answers(define=wrong)) as server, pytest.raises(StatementRefused) as caught:
        opened(server).define("CREATE TEMPORARY TABLE `t` ()")
    assert caught.value.help == "the SQL Gateway lacks the Kafka connector; put its jar into lib/"


@pytest.mark.parametrize("word", ["CANCELED", "CLOSED", "TIMEOUT"])
def test_a_statement_that_the_gateway_ended_is_refused(word: str) -> None:
    with serving(answers(status=Answer({"status": word}))) as server, pytest.raises(StatementRefused, match=word.lower()):
        opened(server).query("SELECT 1")


def test_a_session_that_is_gone_is_opened_again_with_what_was_defined() -> None:
    with serving(answers(state=[LOST, STARTED], first=page(("a",)))) as server:
        session = opened(server)
        session.define("CREATE TEMPORARY TABLE `t` ()")
        assert session.query("SELECT 1").rows == (("a",),)
    kinds = [path.rsplit("/", 1)[1] for path in server.paths()]
    assert kinds == ["sessions", "configure-session", "statements", "sessions", "configure-session", "statements"]


def test_a_gateway_that_loses_every_session_is_given_up() -> None:
    with serving(answers(state=LOST)) as server, pytest.raises(Unreachable, match="loses its sessions"):
        opened(server).query("SELECT 1")


def test_a_start_whose_session_was_gone_before_is_sent_again() -> None:
    with serving(answers(state=[LOST, STARTED], first=page(("ab12",), job="ab12"))) as server:
        assert opened(server).start("EXECUTE PLAN 'p'", {}, lambda: None).job_id == "ab12"


@pytest.mark.parametrize("trouble", [BROKEN, LOST])
def test_a_start_that_was_taken_and_then_lost_has_an_unknown_outcome(trouble: Answer) -> None:
    taken: list[str] = []
    with serving(answers(status=trouble)) as server, pytest.raises(OutcomeUnknown, match="its outcome is not known"):
        opened(server).start("EXECUTE PLAN 'p'", {}, lambda: taken.append("sent"))
    assert taken == ["sent"]
    assert len([path for path in server.paths() if path.endswith("/statements")]) == 1


def test_a_start_whose_request_got_no_answer_is_not_sent_again() -> None:
    with serving(answers(state=BROKEN)) as server, pytest.raises(OutcomeUnknown):
        opened(server).start("EXECUTE PLAN 'p'", {}, lambda: None)
    assert len([path for path in server.paths() if path.endswith("/statements")]) == 1


def test_closing_ends_the_session_and_forgives_a_gateway_that_is_gone() -> None:
    with serving(answers()) as server:
        session = opened(server)
        session.query("SELECT 1")
        session.close()
    assert server.paths("DELETE")[-1] == "/v4/sessions/s1"
    with serving(answers()) as server:
        session = opened(server)
        session.query("SELECT 1")
    session.close()


def test_a_path_in_front_of_the_gateway_is_kept() -> None:
    with serving({f"{key.replace(' ', ' /flink', 1)}": answer for key, answer in answers(first=page(("a",))).items()}) as server:
        assert connect(server, "/flink").session({}).query("SELECT 1").rows == (("a",),)
