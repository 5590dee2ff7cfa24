"""`forebay doctor`: its option. The examination is in `examination`."""

from __future__ import annotations

import json as json_module
from typing import Annotated

from cyclopts import Parameter

from forebay.cli import console


def doctor(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Say what this machine has for serving, and what to do about what is missing.

    Exit code 0 when a model can be served, 1 when not.

    Parameters
    ----------
    json
        Print the findings as JSON.
    """
    from forebay.cli.examination import examine, for_people

    with console.stages("looking at this machine") as report:
        findings = examine(report)
    console.say(json_module.dumps(findings, indent=2) if json else for_people(findings))
    return 0 if findings["can_serve"] else 1
