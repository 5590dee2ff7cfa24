"""The billing line that Claude Code puts before its instructions: `x-anthropic-billing-header: cc_version=…; cch=…;`.

It is meant for Anthropic's own servers and differs from request to request, so that a prompt that began with it would
share no prefix with the one before. It is left out, and nothing else is: only at the very beginning of the
instructions, and only a line that has the shape of the header from end to end.
"""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(r"x-anthropic-billing-header:(?:[ \t]*[A-Za-z0-9_.-]+=[^\s;]*;?)*[ \t]*(?:\r?\n|\Z)")


def without_billing_line(instructions: str) -> str:
    """The instructions, without the line if they begin with it."""
    found = _LINE.match(instructions)
    return instructions if found is None else instructions[found.end() :]
