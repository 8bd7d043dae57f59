"""A streamform project on one target, as a code location sees it, and the names that everything of it has in Dagster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import dagster as dg

from streamform import api
from streamform.catalog import Catalog
from streamform.errors import ProjectError, StreamformError

_OUTSIDE_NAMES = re.compile(r"[^A-Za-z0-9_]")


def slug(text: str) -> str:
    """The text as a part of a Dagster name."""
    return _OUTSIDE_NAMES.sub("_", text)


class StreamformProject:
    """A project folder and a target.

    `target` may be left out where the project has only one. `key_prefix` is what asset keys begin with; the target's
    name unless it is given. What the project declares is read once, when it is first asked for.
    """

    def __init__(self, dir: str | Path, target: str | None = None, *, key_prefix: str | Sequence[str] | None = None) -> None:
        self.dir = Path(dir).expanduser().resolve()
        self.given_target = target
        self.given_prefix = None if key_prefix is None else _parts(key_prefix)

    def __repr__(self) -> str:
        return f"StreamformProject({str(self.dir)!r}, target={self.given_target!r})"

    @cached_property
    def read(self) -> Catalog | StreamformError:
        """The catalog, or why there is none."""
        try:
            return api.catalog(self.dir, self.given_target)
        except StreamformError as error:
            return error

    @property
    def is_loaded(self) -> bool:
        """Whether the documents load and the target exists."""
        return isinstance(self.read, Catalog)

    @property
    def catalog(self) -> Catalog:
        """What the project declares, with whatever compiles of it. Raises: StreamformError when it does not load."""
        if isinstance(self.read, StreamformError):
            raise self.read
        return self.read

    @property
    def problems(self) -> StreamformError | None:
        """Why the project can't be applied as it is on disk, None where it can."""
        if isinstance(self.read, StreamformError):
            return self.read
        return ProjectError(self.read.problems) if self.read.problems else None

    @property
    def app(self) -> str:
        """The project's declared name; its folder's where the documents do not load."""
        return self.dir.name if isinstance(self.read, StreamformError) else self.read.project

    @property
    def target(self) -> str:
        """The target's name."""
        return self.given_target or "streamform" if isinstance(self.read, StreamformError) else self.read.target

    def with_prefix(self, key_prefix: str | Sequence[str] | None) -> StreamformProject:
        """The project under a prefix, unless it has one of its own."""
        return self if self.given_prefix or key_prefix is None else StreamformProject(self.dir, self.given_target, key_prefix=key_prefix)

    # names

    @property
    def key_prefix(self) -> tuple[str, ...]:
        """What asset keys of the project begin with."""
        return self.given_prefix or (self.target,)

    @property
    def group(self) -> str:
        """The asset group of everything in the project."""
        return slug(self.app)

    @property
    def suffix(self) -> str:
        """What tells names of this project and target from those of others."""
        return f"{slug(self.app)}__{slug(self.target)}"

    def model_key(self, model: str) -> dg.AssetKey:
        """The asset of a model."""
        return dg.AssetKey([*self.key_prefix, model])

    def source_key(self, source: str) -> dg.AssetKey:
        """The external asset of a source."""
        return dg.AssetKey([*self.key_prefix, "sources", source])

    @property
    def record_key(self) -> dg.AssetKey:
        """The external asset that keeps the applied record."""
        return dg.AssetKey([*self.key_prefix, "_record"])

    @property
    def problems_key(self) -> dg.AssetKey:
        """The asset that a project has only while it does not compile."""
        return dg.AssetKey([*self.key_prefix, "_problems"])

    @property
    def approvals_key(self) -> dg.AssetKey:
        """The asset of decisions, one partition a plan."""
        return dg.AssetKey(["streamform", "approvals", self.app, self.target])

    @property
    def partitions_name(self) -> str:
        """The dynamic partitions of plans."""
        return f"streamform_plans__{self.app}__{self.target}"

    @property
    def plan_check_key(self) -> dg.AssetCheckKey:
        """The check that says whether a plan waits for somebody."""
        return dg.AssetCheckKey(self.record_key, "plan")

    @property
    def running_check_key(self) -> dg.AssetCheckKey:
        """The check that says whether what was applied runs."""
        return dg.AssetCheckKey(self.record_key, "running")

    def job_name(self, verb: str) -> str:
        """The name of a job, schedule or sensor."""
        return f"streamform__{self.suffix}__{verb}"

    def op_name(self, verb: str, *parts: str) -> str:
        """The name of an op."""
        return "__".join([verb, self.suffix, *map(slug, parts)])

    @property
    def run_tags(self) -> dict[str, str]:
        """What runs of the project's jobs are tagged with."""
        return {"streamform/app": self.app, "streamform/target": self.target}

    @property
    def resource_key(self) -> str:
        """The key under which the project's resource is bound."""
        return f"streamform__{self.suffix}"


def _parts(prefix: str | Sequence[str]) -> tuple[str, ...]:
    return (prefix,) if isinstance(prefix, str) else tuple(prefix)
