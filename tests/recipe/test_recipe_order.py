"""Which orders of roles are refused: by whom, with which words, and where they point."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.recipe.families import Family, talk

from forebay.core.errors import ConversationError, InvalidRequestError, json_pointer
from forebay.recipe import Conversation, Message, ToolCall, ToolSpec
from forebay.recipe.order import OPEN, RoleOrder, SystemPlace, check_order, order_of

_TURNS = RoleOrder(SystemPlace.FIRST, questions_in_a_row=False, question_behind_results=False)
_NO_SYSTEM = RoleOrder(SystemPlace.NOWHERE)
_LETTERS = {"s": "system", "u": "user", "a": "assistant"}


def _shape(letters: str) -> Conversation:
    """One letter a message: system, user, assistant, c(alls: two of them), t(ool result)."""
    messages: list[Message] = []
    for at, letter in enumerate(letters):
        if letter == "c":
            messages.append(Message("assistant", "", calls=[ToolCall("x", "f", "{}"), ToolCall("y", "g", "{}")]))
        elif letter == "t":
            messages.append(Message("tool", "5"))
        else:
            messages.append(Message(_LETTERS[letter], str(at)))  # type: ignore[arg-type]
    return Conversation(messages)


@pytest.mark.parametrize("shape", ["u", "su", "uu", "uau", "ssu", "usu", "usau", "uctt", "uctta u", "ucttu", "ucttctt"])
def test_accepted_where_the_template_renders_turns_as_they_come(shape: str) -> None:
    check_order(OPEN, _shape(shape.replace(" ", "")), continue_final=False)


def test_system_messages_stand_last_where_the_protocol_lets_them() -> None:
    for shape in ("us", "uss", "ucttss"):
        check_order(OPEN, structs.replace(_shape(shape), system_last=True), continue_final=False)
    for shape in ("s", "uas", "ucts"):
        with pytest.raises(ConversationError):
            check_order(OPEN, structs.replace(_shape(shape), system_last=True), continue_final=False)


@pytest.mark.parametrize(
    ("order", "shape", "pointer", "said"),
    [
        (OPEN, "ua", "/messages/1/role", "nothing to answer"),
        (OPEN, "s", "/messages/0/role", "nothing to answer"),
        (OPEN, "us", "/messages/1/role", "nothing to answer"),
        (OPEN, "au", "/messages/0/role", "At the beginning a message of role user is due"),
        (OPEN, "sau", "/messages/1/role", "At the beginning a message of role user is due"),
        (OPEN, "uaau", "/messages/2/role", "role user is due, not assistant"),
        (OPEN, "ut", "/messages/1/role", "has to follow the assistant message"),
        (OPEN, "uat", "/messages/2/role", "left for this result"),
        (OPEN, "ucttt", "/messages/4/role", "left for this result"),
        (OPEN, "uct", "/messages/1/tool_calls/1", "call of 'g' has no result"),
        (OPEN, "uctu", "/messages/1/tool_calls/1", "has no result"),
        (OPEN, "ucu", "/messages/1/tool_calls/0", "has no result"),
        (_TURNS, "uu", "/messages/1/role", "role assistant is due, not user"),
        (_TURNS, "usau", "/messages/1/role", "only as the first"),
        (_TURNS, "ssu", "/messages/1/role", "only as the first"),
        (_TURNS, "ucttu", "/messages/4/role", "assistant is due, not user"),
        (_NO_SYSTEM, "su", "/messages/0/role", "no place for a system message"),
    ],
)
def test_refused(order: RoleOrder, shape: str, pointer: str, said: str) -> None:
    with pytest.raises(ConversationError, match=said) as caught:
        check_order(order, _shape(shape), continue_final=False)
    assert caught.value.pointer == pointer


def test_only_an_answer_without_calls_is_continued() -> None:
    check_order(OPEN, _shape("ua"), continue_final=True)
    for shape, pointer in (("u", "/messages/0/role"), ("uc", "/messages/1")):
        with pytest.raises(ConversationError, match="continued") as caught:
            check_order(OPEN, _shape(shape), continue_final=True)
        assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("results", "pointer"),
    [
        ([("y", ""), ("x", "")], None),
        ([("x", "f"), ("y", "g")], None),
        ([("x", ""), ("x", "")], "/messages/3/tool_call_id"),
        ([("z", "")], "/messages/2/tool_call_id"),
        ([("x", "g")], "/messages/2/name"),
    ],
)
def test_results_answer_calls_by_id(results: list[tuple[str, str]], pointer: str | None) -> None:
    called = _shape("uc").messages
    answers = [Message("tool", "5", call_id=call_id, name=name) for call_id, name in results]
    conversation = Conversation([*called, *answers])
    if pointer is None:
        check_order(OPEN, conversation, continue_final=False)
        return
    with pytest.raises(ConversationError) as caught:
        check_order(OPEN, conversation, continue_final=False)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("conversation", "param"),
    [
        (Conversation([Message("user", "x")], [ToolSpec("f")]), "tools"),
        (_shape("uctt"), "messages.1.tool_calls"),
    ],
)
def test_a_template_without_tools_says_so(conversation: Conversation, param: str) -> None:
    with pytest.raises(InvalidRequestError, match="no place for tools") as caught:
        check_order(order_of("llama2"), conversation, continue_final=False)
    assert caught.value.param == param


def test_a_participants_name_is_refused_where_it_would_be_left_out(built: dict[str, Family]) -> None:
    conversation = Conversation(
        [Message("user", "Hi"), Message("assistant", "Yes"), Message("user", "So?", name="Ann")]
    )
    for name in ("chatml", "llama3", "phi3"):
        with pytest.raises(InvalidRequestError, match="participant's name") as caught:
            built[name].recipe.encode_chat(conversation)
        assert caught.value.param == "messages.2.name"
    check_order(RoleOrder(names=True), conversation, continue_final=False)


def test_tables_are_found_by_the_longest_name() -> None:
    assert order_of("gemma2").system is SystemPlace.NOWHERE
    assert order_of("gemma3").system is SystemPlace.FIRST
    assert order_of("mistral-v7-tekken").questions_in_a_row is False
    assert order_of("chatml") is OPEN


@pytest.mark.parametrize(("turns", "param"), [("uu", "messages.1.role"), ("usau", "messages.1.role")])
def test_models_that_take_turns_say_whose_turn_it_is(built: dict[str, Family], turns: str, param: str) -> None:
    for name in ("llama2", "mistral-v3", "mistral-tekken"):
        with pytest.raises(ConversationError) as caught:
            built[name].recipe.encode_chat(_shape(turns))
        assert caught.value.param == param


def test_order_is_checked_before_text_is_looked_at(built: dict[str, Family]) -> None:
    with pytest.raises(ConversationError):
        built["chatml"].recipe.encode_chat(talk(("assistant", "\ud800"), ("user", "x")))


def test_pointers_escape_what_json_pointers_have_to() -> None:
    assert json_pointer(("tools", 0, "a/b~c")) == "/tools/0/a~1b~0c"
