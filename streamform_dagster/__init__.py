"""Dagster assets, approvals and sensors for streamform projects.

    defs = build_streamform_defs(StreamformProject("path/to/project", target="local"))

Materializing an asset plans, asks the gate and applies; what needs an approval waits until somebody decides.
"""

from streamform_dagster.assets import streamform_assets
from streamform_dagster.component import StreamformProjectComponent
from streamform_dagster.definitions import build_streamform_defs
from streamform_dagster.identity import HeaderRunCoordinator
from streamform_dagster.project import StreamformProject
from streamform_dagster.resource import StreamformResource
from streamform_dagster.translator import DagsterStreamformTranslator, ModelProps, SourceProps

__all__ = [
    "DagsterStreamformTranslator",
    "HeaderRunCoordinator",
    "ModelProps",
    "SourceProps",
    "StreamformProject",
    "StreamformProjectComponent",
    "StreamformResource",
    "build_streamform_defs",
    "streamform_assets",
]
