"""The `forebay` command: finds the subcommand, its options and their sources, and turns errors into exit codes.

Exit codes: 0 success; 1 the command failed, with the reason as one line on stderr; 2 wrong usage; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

from forebay import __version__
from forebay.cli import bench_cache, console
from forebay.cli.bench import engine as bench_engine
from forebay.cli.bench import serve as bench_serve
from forebay.cli.bench_compare import compare as bench_compare
from forebay.cli.bench_recipe import recipe as bench_recipe
from forebay.cli.cache import app as cache
from forebay.cli.chat import chat
from forebay.cli.doctor import doctor
from forebay.cli.options import UsageError, env_source, read_config
from forebay.cli.recipe import app as recipe
from forebay.cli.serve import serve
from forebay.core.errors import ForebayError

if TYPE_CHECKING:
    from rich.text import Text

HELP = """Serve open-weight language models behind OpenAI and Anthropic APIs.

Every option can also be set by its environment variable, or in a TOML file (--config) in the section of its command,
such as [serve] or [bench.engine]. The command line wins over the environment, which wins over the file.
"""


def usage_error(error: CycloptsError) -> Text:
    """What is wrong, and where to look. As rich's Text, so that brackets within it are no markup."""
    from rich.text import Text

    command = " ".join(("forebay", *(error.command_chain or ())))
    return Text(f"forebay: {error}\nTry: {command} --help")


app = App(
    name="forebay",
    version=__version__,
    help=HELP,
    config=env_source(),
    default_parameter=Parameter(negative_iterable=()),
    error_formatter=usage_error,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(serve)
app.command(chat)
bench = App(name="bench", help="Measure a server over HTTP, or the engine by itself.")
bench.command(bench_serve, name="serve")
bench.command(bench_engine, name="engine")
bench.command(bench_compare, name="compare")
bench.command(bench_recipe, name="recipe")
bench.command(bench_cache.preempt)
bench.command(bench_cache.restore)
bench.command(bench_cache.write_through)
bench.command(bench_cache.agent_replay)
bench.command(bench_cache.trace_replay)
app.command(bench)
app.command(cache)
app.command(recipe)
app.command(doctor)

SECTIONS = ("serve", "chat", "bench", "cache", "recipe", "doctor")


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[Path | None, Parameter(env_var="FOREBAY_CONFIG", show_env_var=False)] = None,
) -> object:
    """Run a command with the sources of options in place.

    Parameters
    ----------
    config
        TOML file with options, in a section per command; FOREBAY_CONFIG names one too.
    """
    app.config = env_source() if config is None else (env_source(), read_config(config, SECTIONS))
    return app(tokens)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (by default the process's own arguments) and return the exit code."""
    try:
        code = app.meta(sys.argv[1:] if arguments is None else list(arguments))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except (ForebayError, KeyboardInterrupt) as error:
        return _exit_code(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forebay"):
            raise
        console.fail(f"The package {error.name} is not installed. Run scripts/setup, or pip install what is missing.")
        return 1
    except BaseExceptionGroup as group:
        leaf = _first_leaf(group)
        if not isinstance(leaf, ForebayError | KeyboardInterrupt):
            raise
        return _exit_code(leaf)
    return code if isinstance(code, int) else 0


def _exit_code(error: ForebayError | KeyboardInterrupt) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    console.fail(str(error))
    return 2 if isinstance(error, UsageError) else 1


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error within a task group's group of them; the others followed from it or came at the same time."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
