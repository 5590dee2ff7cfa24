"""`forebay chat`: its options and the conversation at the terminal. Where answers come from is chat_source's business.

Ctrl-C stops the current answer and keeps what came of it; pressed again at the prompt it ends the chat. Off a terminal
the output is the answers alone.
"""

from __future__ import annotations

import sys
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from forebay.cli import console
from forebay.cli.options import DEFAULT_MODEL, ENGINE_DEFAULTS, EngineOptions, Positive, UsageError
from forebay.core.errors import ForebayError

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from forebay.cli.chat_source import ChatSource

HELP = """\
/reset         forget the conversation
/system TEXT   set the system message and start anew (no TEXT: none)
/exit          leave (also /quit and Ctrl-D)
/help          show this"""


@Parameter(name="*", group="Chat")
@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What is said, and how answers are chosen."""

    message: Annotated[str | None, Parameter(name=("--message", "-m"))] = None
    """Ask this one thing, print the answer and leave; text piped into the command is asked the same way."""
    system: str | None = None
    """System message."""
    temperature: Annotated[float, Parameter(validator=Number(gte=0, lte=2))] = 0.7
    """How freely tokens are chosen; 0 always takes the likeliest."""
    max_tokens: Positive | None = None
    """Longest answer in tokens; by default what the context leaves."""
    seed: int | None = None
    """Makes answers repeatable; by default every answer differs."""


@Parameter(name="*", group="Server")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """A running server to talk to, instead of an engine of the chat's own."""

    base_url: str | None = None
    """Talk to the OpenAI-compatible server at this address, such as http://127.0.0.1:8000."""
    api_key: str | None = None
    """Key for that server."""


_CHAT = ChatOptions()
_SERVER = ServerOptions()


def chat(
    model: str | None = None,
    *,
    chat: ChatOptions = _CHAT,
    server: ServerOptions = _SERVER,
    engine: EngineOptions = ENGINE_DEFAULTS,
) -> int:
    """Talk to a model in the terminal, with an engine of its own or through a server (--base-url).

    Parameters
    ----------
    model
        As for forebay serve, by default smollm2; with --base-url a name that the server knows, by default its first.
    """
    from anyio.from_thread import start_blocking_portal

    from forebay.cli.chat_source import open_source

    question = chat.message if chat.message is not None else _piped()
    if question is not None and not question.strip():
        raise UsageError("The message is empty; say something with -m or through a pipe.")
    with start_blocking_portal() as portal:
        opening = open_source(model or DEFAULT_MODEL if server.base_url is None else model, chat, server, engine)
        with portal.wrap_async_context_manager(opening) as source:
            session = Session(portal, source, chat.system)
            if question is None:
                return session.talk()
            return 0 if session.ask(question) else 130


def _piped() -> str | None:
    return None if sys.stdin.isatty() else sys.stdin.read()


@dataclass(slots=True)
class Session:
    """One conversation. What gets answers runs in the portal's thread; this one waits and reads the keyboard."""

    portal: BlockingPortal
    source: ChatSource
    system: str | None
    turns: list[dict[str, str]] = field(default_factory=list)

    def talk(self) -> int:
        """Read and answer until told to leave; returns the exit code."""
        import readline  # noqa: F401  (importing it gives input() editing and history)

        console.notice(
            f"Talking to {self.source.name}. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )
        interrupted = False
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                console.say()
                return 0
            except KeyboardInterrupt:
                console.say()
                if interrupted:
                    return 130
                interrupted = True
                console.notice("Ctrl-C again leaves.")
                continue
            if line.startswith("/"):
                interrupted = False
                if not self.command(line):
                    return 0
            elif line:
                interrupted = not self._ask_kindly(line)

    def command(self, line: str) -> bool:
        """Carry out a line that begins with a slash; False when it ends the chat."""
        name, _, text = line.partition(" ")
        match name:
            case "/exit" | "/quit":
                return False
            case "/reset":
                self.turns.clear()
                console.notice("The conversation starts anew.")
            case "/system":
                self.turns.clear()
                self.system = text.strip() or None
                console.notice(
                    "The conversation starts anew, with this system message." if self.system else "No system message."
                )
            case "/help":
                console.notice(HELP)
            case _:
                console.notice(f"There is no command {name}.\n{HELP}")
        return True

    def _ask_kindly(self, question: str) -> bool:
        """As `ask`, but an error is only reported and the question forgotten: the chat goes on."""
        try:
            return self.ask(question)
        except ForebayError as error:
            self.turns.pop()
            console.fail(str(error))
            return True

    def ask(self, question: str) -> bool:
        """Ask, print the answer as it comes, remember both. False when Ctrl-C cut it short; what came is kept.

        Raises ForebayError when there is no answer.
        """
        self.turns.append({"role": "user", "content": question})
        pieces: list[str] = []
        answer = self.portal.start_task_soon(self._stream, pieces)
        try:
            answer.result()
            return True
        except KeyboardInterrupt:
            answer.cancel()
            return False
        except CancelledError:
            return False
        finally:
            console.say()
            if pieces:
                self.turns.append({"role": "assistant", "content": "".join(pieces)})

    async def _stream(self, pieces: list[str]) -> None:
        system = [{"role": "system", "content": self.system}] if self.system else []
        async for piece in self.source.answer([*system, *self.turns]):
            pieces.append(piece)
            console.say(piece, end="")
