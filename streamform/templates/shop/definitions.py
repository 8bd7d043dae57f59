"""The Dagster code location of this project: `dagster dev -f definitions.py`."""

from pathlib import Path

from streamform_dagster import StreamformProject, build_streamform_defs

defs = build_streamform_defs(StreamformProject(Path(__file__).parent, target="local"))
