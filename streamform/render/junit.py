"""The test report as JUnit XML, which build servers read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from streamform.render.test import render_fixture

if TYPE_CHECKING:
    from streamform.results import TestReport
    from streamform.simulator.run import FixtureReport


def junit_document(report: TestReport) -> str:
    """One test suite, a case for each fixture."""
    failures = sum(not fixture.passed for fixture in report.fixtures)
    suite = Element("testsuite", name="streamform", tests=str(len(report.fixtures)), failures=str(failures), errors="0", skipped="0")
    for fixture in report.fixtures:
        _case(suite, fixture)
    indent(suite)
    return tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: Element, fixture: FixtureReport) -> None:
    case = SubElement(suite, "testcase", classname=fixture.model, name=fixture.path, file=fixture.path)
    if not fixture.passed:
        message = fixture.error or "the changelog differs from what is expected"
        SubElement(case, "failure", message=_printable(message)).text = _printable(render_fixture(fixture))


def _printable(text: str) -> str:
    """XML has no control characters."""
    return "".join(c if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff") else "?" for c in text)
