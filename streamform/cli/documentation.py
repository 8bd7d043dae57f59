"""The commands as a documentation page."""

from __future__ import annotations

from streamform.cli.parser import COMMANDS, Command
from streamform.render.tables_markdown import GENERATED, markdown_table


def cli_page() -> str:
    """docs/cli.md: every command with its options and examples."""
    return f"{GENERATED}# Commands\n\n" + "\n".join(map(_section, COMMANDS))


def _section(command: Command) -> str:
    options = [(", ".join(f"`{flag}`" for flag in option.flags), option.help) for option in command.options]
    shared = (
        (command.project, "--project", "the project's folder (default: this one)"),
        (command.target, "--target", "a target of streamform.yml (default: the only one)"),
        (command.json, "--json", "print JSON"),
    )
    options += [(f"`{flag}`", meaning) for present, flag, meaning in shared if present]
    examples = "\n".join(command.examples)
    table = markdown_table(("option", "meaning"), options)
    return f"## {command.name}\n\n{command.help[0].upper()}{command.help[1:]}.\n\n{table}\n```sh\n{examples}\n```\n"
