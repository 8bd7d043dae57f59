"""The component of a project, for `defs.yaml`. It compiles on the spot; there is no state to refresh."""

from dataclasses import dataclass

import dagster as dg

from streamform_dagster.definitions import build_streamform_defs
from streamform_dagster.project import StreamformProject


@dataclass
class StreamformProjectComponent(dg.Component, dg.Resolvable):
    """A streamform project on a target.

    `project` is the project's folder, from the folder of the defs.yaml when it is relative.
    """

    project: str
    target: str | None = None
    key_prefix: list[str] | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """What build_streamform_defs makes of it."""
        return build_streamform_defs(StreamformProject(context.path / self.project, self.target, key_prefix=self.key_prefix))
