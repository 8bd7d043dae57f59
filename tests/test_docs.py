"""The documentation is true: command lines parse, links lead somewhere, and walks give the output that is shown.

A ```console block is run: lines that start with `$ ` are commands, the lines below them their output; `$ echo $?` shows the exit
code of the command before it, which is 0 otherwise. `pytest tests/test_docs.py --update-golden` writes the output anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from streamform.cli.parser import build_parser
from tests.conftest import REPOSITORY

PAGES = sorted({REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "deploy").rglob("*.md")})
WALKS = ("README.md", "docs/getting-started.md", "docs/approvals.md")
"""Pages whose console blocks are run, in one shell session each."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(streamform [^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SHELL_END = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>"})
WIDE, PLAN_ID = re.compile(r" {2,}"), re.compile(r"\b[0-9a-f]{16}\b")
VOLATILE = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"by streamform \d+\.\d+\.\d+\S*,?"), "by streamform <version>"),
    (PLAN_ID, "<plan id>"),
    (WIDE, "  "),
)
STATUS = "echo $?"


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text) if language in languages]


# command lines


def command_lines(text: str) -> Iterator[str]:
    """Every command line of a page that starts with the product's name."""
    for body in blocks(text, "sh", "console", "bash"):
        for line in body.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").strip()
            if command.startswith("streamform "):
                yield command
    yield from INLINE.findall(FENCE.sub("", text))


def arguments_of(command: str) -> list[str]:
    """The words behind the product's name, up to where the shell takes over."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in SHELL_END:
            break
        words.append(word)
    return words[1:]


COMMANDS = sorted({(name_of(page), command) for page in PAGES for command in command_lines(page.read_text())})


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command_lines_parse(page: str, command: str) -> None:
    said = StringIO()
    assert parse(arguments_of(command), said) == 0, f"{page}: {command}\n{said.getvalue()}"


def parse(arguments: list[str], said: StringIO) -> int:
    """The exit code of the parser: 0 for what it takes, and for --help and --version."""
    try:
        with redirect_stderr(said), redirect_stdout(said):
            build_parser().parse_args(arguments)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


# links


def headings(text: str) -> set[str]:
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    wrong: list[str] = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        is_there = place.exists() and (not anchor or anchor in headings(place.read_text()))
        if not is_there:
            wrong.append(target)
    assert not wrong


def test_every_page_is_in_the_index() -> None:
    index = REPOSITORY / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    pages = {page.resolve() for page in (REPOSITORY / "docs").glob("*.md")} - {index.resolve()}
    assert pages <= listed, sorted(page.name for page in pages - listed)


# walks


class Step(NamedTuple):
    """A command of a walk with what is shown below it."""

    command: str
    shown: list[str]


def steps_of(body: str) -> list[Step]:
    steps: list[Step] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], []))
        else:
            steps[-1].shown.append(line)
    return steps


class Walk:
    """One shell session: the folder that it is in and the plan ids that stand for those on the page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.top, self.code = folder, folder, 0
        self.ids: dict[str, str] = {}
        self.newest = ""
        search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": search, "LOGNAME": "ana", "NO_COLOR": "1", "STREAMFORM_CACHE_DIR": str(folder / ".cache")}

    def run(self, step: Step) -> list[str]:
        """The output of a command, standard error left out where a command succeeds."""
        if step.command == STATUS:
            code, self.code = self.code, 0
            return [str(code)]
        assert self.code == 0, f"the command before `{step.command}` ended with {self.code}, and the page does not show that"
        command = PLAN_ID.sub(lambda found: self.ids.get(found.group(), self.newest), step.command)
        script = f"{command}\ncode=$?\npwd > '{self.top}/.folder'\nexit $code"
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, text=True, capture_output=True, check=False)
        self.folder = Path((self.top / ".folder").read_text().strip())
        self.code = done.returncode
        output = done.stdout if done.returncode == 0 or done.stdout else done.stderr
        lines = [line.rstrip() for line in output.rstrip("\n").splitlines()]
        found = PLAN_ID.findall("\n".join(lines))
        self.ids |= dict(zip(PLAN_ID.findall("\n".join(step.shown)), found, strict=False))
        self.newest = found[-1] if found else self.newest
        return lines

    def written(self, command: str) -> str:
        """The command as the page has it after an update: ids that no output on the page shows are the newest one."""
        return PLAN_ID.sub(lambda found: found.group() if found.group() in self.ids else self.newest, command)


def plain(lines: list[str]) -> list[str]:
    """Lines without what differs from one run to the next."""
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text.splitlines()


def is_shown(lines: list[str], shown: list[str]) -> bool:
    """Whether the output is what is shown, where a line `...` stands for any lines."""
    parts = [re.escape(line) if line != "..." else "...." for line in plain(shown)]
    pattern = "\n".join(parts).replace("....\n", r"(?:.*\n)*").replace("\n....", r"(?:\n.*)*")
    return re.fullmatch(pattern, "\n".join(plain(lines))) is not None


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_gives_what_is_shown(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = REPOSITORY / name
    text = page.read_text()
    walk, wrong, rewritten = Walk(tmp_path), list[str](), text
    for body in blocks(text, "console"):
        written: list[str] = []
        for step in steps_of(body):
            lines = walk.run(step)
            if not is_shown(lines, step.shown):
                wrong.append("\n".join([f"$ {step.command}", *lines, "--- the page shows", *step.shown]))
            elided = "..." in step.shown or is_shown(lines, step.shown)
            written += [f"$ {walk.written(step.command)}", *(step.shown if elided else lines)]
        rewritten = rewritten.replace(body, "\n".join(written) + "\n", 1)
    if request.config.getoption("--update-golden"):
        page.write_text(rewritten)
    else:
        assert not wrong, "\n\n".join(wrong)
