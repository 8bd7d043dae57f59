"""A project that does not load or compile: the code location still loads, and shows what is wrong."""

# Annotations are evaluated, because Dagster reads those of decorated functions.

import logging
from typing import Any

import dagster as dg

from streamform.errors import StreamformError
from streamform_dagster.events import problems_failure, problems_text
from streamform_dagster.metadata import fenced, key
from streamform_dagster.project import StreamformProject

logger = logging.getLogger("dagster.streamform")


def build_problems(project: StreamformProject, error: StreamformError) -> dg.AssetsDefinition:
    """An asset that carries the diagnostics; materializing it looks again. Its being there is also logged."""
    text = problems_text(error)
    logger.error("%s does not compile; its code location is incomplete until it does and is reloaded:\n%s", project, text)

    @dg.multi_asset(
        name=project.op_name("problems"),
        specs=[
            dg.AssetSpec(
                project.problems_key,
                description=f"**The project does not compile.** Correct it, then reload the code location.\n\n{fenced(text)}",
                metadata={key("problems"): dg.MetadataValue.md(fenced(text)), key("project"): str(project.dir)},
                group_name=project.group,
                kinds={"streamform", "error"},
            )
        ],
    )
    def problems(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        now = StreamformProject(project.dir, project.given_target).problems
        if now is not None:
            raise problems_failure(now)
        return dg.MaterializeResult(
            asset_key=project.problems_key, metadata={key("next"): "The project compiles; reload the code location."}
        )

    return problems
