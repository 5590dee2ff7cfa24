"""`forebay chat` against a server in a thread: one question, a conversation, its commands, and what goes wrong."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


class Terminal(io.StringIO):
    """Standard input that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def type_lines(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have `input` give these lines, raise these exceptions, then say that the input ended."""
    monkeypatch.setattr("sys.stdin", Terminal())

    def type_(*lines: str | type[BaseException]) -> None:
        typed = iter(lines)

        def read(_: str = "") -> str:
            line = next(typed, EOFError)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr("builtins.input", read)

    return type_


def test_one_question_prints_the_answer_alone(run: Run, server: Any) -> None:
    choices = ("--system", "Be brief.", "--temperature", "0", "--max-tokens", "9", "--seed", "4")
    outcome = run("chat", "--base-url", server.url, "--api-key", "k", "-m", "Hello?", *choices)
    assert (outcome.code, outcome.out, outcome.err) == (0, "Rivers run down.\n", "")
    assert server.keys == ["Bearer k"]
    (body,) = server.asked
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    assert (body["model"], body["temperature"], body["max_tokens"], body["seed"]) == ("fake", 0, 9, 4)


def test_piped_text_is_a_question(run: Run, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Piped?\n"))
    assert run("chat", "--base-url", server.url).out == "Rivers run down.\n"
    assert server.asked[0]["messages"][0]["content"] == "Piped?\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    outcome = run("chat", "--base-url", server.url)
    assert (outcome.code, "empty" in outcome.message) == (2, True)


def test_a_conversation_remembers_until_it_is_reset(run: Run, server: Any, type_lines: Callable[..., None]) -> None:
    type_lines("one", "", "two", "/reset", "three", "/system Be kind.", "four", "/nonsense", "/help", "/exit", "five")
    outcome = run("chat", "--base-url", server.url)
    assert outcome.code == 0
    said = [[turn["content"] for turn in body["messages"]] for body in server.asked]
    answer = "Rivers run down."
    assert said == [["one"], ["one", answer, "two"], ["three"], ["Be kind.", "four"]]
    assert "no command /nonsense" in outcome.message
    assert outcome.out.count(answer) == 4


def test_an_error_does_not_end_the_conversation(run: Run, server: Any, type_lines: Callable[..., None]) -> None:
    server.fail_every = 2
    type_lines("one", "two", "three")
    outcome = run("chat", "--base-url", server.url)
    assert outcome.code == 0
    assert "503: no room left" in outcome.message
    assert [turn["content"] for turn in server.asked[2]["messages"]] == ["one", "Rivers run down.", "three"]


def test_an_error_ends_a_single_question(run: Run, server: Any) -> None:
    server.fail_every = 1
    outcome = run("chat", "--base-url", server.url, "-m", "Hello?")
    assert (outcome.code, "503: no room left" in outcome.message) == (1, True)


def test_ctrl_c_twice_leaves_and_once_does_not(run: Run, server: Any, type_lines: Callable[..., None]) -> None:
    type_lines(KeyboardInterrupt, "one", KeyboardInterrupt, KeyboardInterrupt, "never")
    outcome = run("chat", "--base-url", server.url)
    assert outcome.code == 130
    assert [body["messages"][0]["content"] for body in server.asked] == ["one"]


def test_no_server_is_one_line(run: Run) -> None:
    outcome = run("chat", "--base-url", "http://127.0.0.1:9", "-m", "Hello?")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
