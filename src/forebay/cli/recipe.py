"""`forebay recipe check` and `recipe show`: their options. What they do is in `recipe_check` and `recipe_show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from forebay.cli.options import DEFAULT_MODEL, Flag

app = App(name="recipe", help="Look at what a model reads: check that no text becomes a control token, show a prompt.")


@app.command
def check(model: str = DEFAULT_MODEL, *, json: Flag = False) -> int:
    """Type every control token of a model into every field of a request, and count what becomes one.

    Exit code 0 when nothing is forged and no two conversations have the same ids, else 1.

    Parameters
    ----------
    model
        As for forebay serve; also a folder that has only a tokenizer's files.
    json
        Print the report as JSON.
    """
    from forebay.cli.recipe_check import run

    return run(model, as_json=json)


@app.command
def show(
    file: Annotated[str | None, Parameter(allow_leading_hyphen=True, show_default=False)] = None,
    *,
    model: str = DEFAULT_MODEL,
    protocol: Literal["auto", "chat", "responses", "messages"] = "auto",
    against: Literal["naive"] | None = None,
    json: Flag = False,
    html: Annotated[Path | None, Parameter(show_default=False)] = None,
    svg: Annotated[Path | None, Parameter(show_default=False)] = None,
) -> int:
    """Show the prompt of a request: which tokens, and who wrote each.

    Parameters
    ----------
    file
        A request's JSON body, or a text, which is one user message; - is standard input. Without it an example is
        shown, in which a user types a system turn.
    model
        As for forebay serve; also a folder that has only a tokenizer's files.
    protocol
        Whose request it is; auto tells by its fields.
    against
        naive shows beside it what rendering the conversation as one string would have made.
    json
        Print ids, spans and pieces as JSON.
    html
        Also write what is shown to this file, as a web page.
    svg
        Also write what is shown to this file, as a picture.
    """
    from forebay.cli.recipe_show import run

    return run(file, model, protocol, naive=against is not None, as_json=json, html=html, svg=svg)
