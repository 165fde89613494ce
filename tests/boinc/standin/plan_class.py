"""What a plan class of plan_class_spec.xml needs of a host: processors only, no graphics card."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path


def processors(project: Path, plan_class: str, host_processors: int) -> float | None:
    """How many of the host's processors a task of the class gets; None when the host cannot run it."""
    if not plan_class:
        return 1
    for spec in ElementTree.parse(project / "plan_class_spec.xml").getroot().iter("plan_class"):
        if (spec.findtext("name") or "").strip() == plan_class and spec.find("gpu_type") is None:
            fits = host_processors >= float(spec.findtext("min_ncpus", "1"))
            return min(float(spec.findtext("max_threads", "1")), host_processors) if fits else None
    return None
