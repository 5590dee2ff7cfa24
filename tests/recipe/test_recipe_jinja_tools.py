"""Unknown templates with tools: who wrote what is followed through calls, results and schemas, or tools are refused
with the reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import property_test

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe import Conversation, KeptAnswer, Message, ToolCall, ToolSpec
from forebay.recipe.jinja.json_text import marked_json, plain_json
from forebay.recipe.jinja.kept import AnswerPlace
from forebay.recipe.jinja.marked import MARKS, TEMPLATE, TOOLS, UNKNOWN, Marked
from forebay.recipe.jinja.template import JinjaTemplate
from forebay.recipe.jinja.verify import verify
from forebay.recipe.order import SystemPlace
from forebay.recipe.pieces import Control, Kept, Piece, Text

_CONTROL = {"<|user|>": 1, "<|assistant|>": 2, "<|system|>": 3, "<|end|>": 4, "<|tool|>": 6, "<|call|>": 7}
_TOOLS_AS_JSON = "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
_MESSAGES = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<|call|>{{ c.function.name }}: {{ CALL }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_AS_JSON = _MESSAGES.replace("CALL", "c.function.arguments | tojson")
_TOOL = ToolSpec("find<|end|>", "It's <|end|>.", {"properties": {"a<|end|>": {"enum": ["x<|end|>", 7, None]}}})
_CALL = ToolCall("id<|end|>", "find<|end|>", '{"a<|end|>": "b<|end|>", "n": 1.10, "n": 12345678901234567890}')


def _template(source: str) -> JinjaTemplate:
    template = JinjaTemplate(source, _CONTROL, {}, lambda: datetime(2026, 2, 3))
    verify(template, source, _CONTROL, {}, lambda: datetime(2026, 2, 3))
    return template


def _talk(**kwargs: Any) -> Conversation:
    messages = [
        Message("user", "Hi"),
        Message("assistant", "", calls=[_CALL], **kwargs),
        Message("tool", "5<|end|>", call_id=_CALL.id),
    ]
    return Conversation(messages, [_TOOL])


_WALKS = (
    "{% for t in tools or [] %}<|system|>{% for k, v in t.function.parameters.properties | items %}{{ k }}: "
    "{{ v.enum | join(', ') }}{% endfor %}{{ t.function.name }}{{ t.function.description | upper }}<|end|>{% endfor %}"
    + _MESSAGES.replace("{{ CALL }}", "{% for k, v in c.function.arguments.items() %}{{ k ~ '=' ~ v }}{% endfor %}")
)


@pytest.mark.parametrize("source", [_TOOLS_AS_JSON + _AS_JSON, _WALKS])
def test_no_field_of_a_tool_becomes_control(source: str) -> None:
    template = _template(source)
    assert template.abilities.tools
    pieces = list(template.pieces(_talk()))
    assert [piece.id for piece in pieces if isinstance(piece, Control)] == [3, 4, 1, 4, 2, 7, 4, 6, 4, 2]
    texts = [piece for piece in pieces if isinstance(piece, Text)]
    assert Text("5<|end|>", Origin.TOOL) in texts
    assert {piece.origin for piece in texts if "find" in piece.text} == {Origin.SYSTEM, Origin.ASSISTANT}


def test_arguments_keep_their_spelling() -> None:
    texts = [piece.text for piece in _template(_TOOLS_AS_JSON + _AS_JSON).pieces(_talk()) if isinstance(piece, Text)]
    assert _CALL.arguments in texts
    walked = "".join(piece.text for piece in _template(_WALKS).pieces(_talk()) if isinstance(piece, Text))
    assert "12345678901234567890" in walked
    single = Conversation([Message("user", "Hi"), Message("assistant", "", calls=[ToolCall("c", "f", '{"n": 1.10}')])])
    shown = _template(_WALKS).pieces(Conversation([*single.messages, Message("tool", "5")], [_TOOL]))
    assert "1.10" in "".join(piece.text for piece in shown if isinstance(piece, Text))


_DEEP = '{"a": ' * 900 + "1" + "}" * 900


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '"x"', "<|end|>", _DEEP])
def test_arguments_that_are_no_object_are_given_as_text(arguments: str) -> None:
    messages = _talk().messages
    messages[1] = Message("assistant", "", calls=[ToolCall("id<|end|>", "f", arguments)])
    pieces = _template(_TOOLS_AS_JSON + _AS_JSON).pieces(Conversation(messages, [_TOOL]))
    assert [piece.id for piece in pieces if isinstance(piece, Control)] == [3, 4, 1, 4, 2, 7, 4, 6, 4, 2]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (_MESSAGES.replace("CALL", "c.function.arguments"), "no place for tools"),
        (_TOOLS_AS_JSON.replace("tojson", "string") + _AS_JSON, "loses who wrote"),
        ("{% if tools %}{{ tools[0].function.name.ljust(40) }}{% endif %}" + _AS_JSON, "loses who wrote"),
    ],
)
def test_tools_are_refused_with_the_reason(source: str, said: str) -> None:
    template = _template(source)
    assert list(template.pieces(Conversation([Message("user", "Hi")])))
    with pytest.raises(InvalidRequestError, match=said) as caught:
        list(template.pieces(_talk()))
    assert caught.value.param == "tools"


def test_arguments_are_text_for_templates_that_want_text() -> None:
    template = _template(_TOOLS_AS_JSON + _MESSAGES.replace("{{ CALL }}", "{{ ' ' + c.function.arguments }}"))
    assert template.abilities.tools
    assert template.arguments_as_text
    texts = [piece.text for piece in template.pieces(_talk()) if isinstance(piece, Text)]
    assert _CALL.arguments in "".join(texts)


def test_what_a_template_would_leave_out_is_refused() -> None:
    drops = _TOOLS_AS_JSON + _AS_JSON.replace("{{ m.content }}", "{% if not m.tool_calls %}{{ m.content }}{% endif %}")
    messages = _talk().messages
    messages[1] = Message("assistant", "beside", calls=[_CALL])
    with pytest.raises(InvalidRequestError, match="text of a message that calls") as caught:
        list(_template(drops).pieces(Conversation(messages, [_TOOL])))
    assert caught.value.param == "messages.1.content"
    first = _TOOLS_AS_JSON + _AS_JSON.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
    messages[1] = Message("assistant", "", calls=[_CALL, _CALL])
    with pytest.raises(InvalidRequestError, match="all calls of a message but one") as caught:
        list(_template(first).pieces(Conversation(messages, [_TOOL])))
    assert caught.value.param == "messages.1.tool_calls"


def test_the_order_of_roles_is_found_by_trying() -> None:
    turns = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}"
        "{% endif %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    )
    order = _template(turns).order
    assert (order.system, order.questions_in_a_row) == (SystemPlace.NOWHERE, False)
    order = _template(_AS_JSON).order
    assert (order.system, order.questions_in_a_row, order.names) == (SystemPlace.ANYWHERE, True, False)
    named = _AS_JSON.replace("{{ m.content }}", "{% if m.name %}{{ m.name }}: {% endif %}{{ m.content }}")
    assert _template(named).order.names


def test_kept_ids_stand_between_what_asks_for_an_answer_and_what_ends_it() -> None:
    template = _template(_TOOLS_AS_JSON + _AS_JSON)
    assert template.abilities.answer == AnswerPlace("<|assistant|>", "<|end|>")
    pieces: list[Piece] = list(template.pieces(_talk(kept=KeptAnswer([50, 51]))))
    at = pieces.index(Kept((50, 51)))
    assert (pieces[at - 1], pieces[at + 1]) == (Control(2), Control(4))
    assert Control(7) not in pieces


def test_a_template_without_a_clear_place_shows_kept_answers_as_text() -> None:
    template = _template("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    messages = [Message("user", "Hi"), Message("assistant", "Yes", kept=KeptAnswer([50])), Message("user", "So?")]
    assert not any(isinstance(piece, Kept) for piece in template.pieces(Conversation(messages)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@property_test
@given(_JSON, st.sampled_from([None, 0, 2]), st.booleans())
def test_json_is_that_of_the_library(value: Any, indent: int | None, sort: bool) -> None:
    import json

    expected = json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort)
    assert plain_json(value, indent=indent, sort_keys=sort) == expected
    assert str.__str__(marked_json(value, indent=indent, sort_keys=sort)) == expected


@pytest.mark.parametrize("options", ["", "indent=2", "sort_keys=true", "separators=(',', ':')", "ensure_ascii=true"])
def test_tools_as_json_are_those_of_the_library(options: str) -> None:
    import json

    tool = ToolSpec("b", "é", {"type": "object", "properties": {"z": {"function": {"a": 1.0}}, "a": {}}})
    source = f"{{{{ tools | tojson({options}) }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
    given = [{"type": "function", "function": {"name": "b", "description": "é", "parameters": tool.parameters}}]
    keywords = eval(f"dict({options.replace('true', 'True')})")
    expected = json.dumps(given, **{"ensure_ascii": False, **keywords})
    template = JinjaTemplate(source, _CONTROL, {}, lambda: datetime(2026, 2, 3))
    shown = template.render(Conversation([Message("user", "")], [tool]))
    assert str.__str__(shown) == expected
    assert set(shown.marks) == {TOOLS}


def test_json_of_one_owner_is_all_its_own() -> None:
    text = marked_json({Marked.of("k", TOOLS): [1, Marked.of("a\n", TOOLS)]})
    assert set(text.marks) == {TOOLS}
    mixed = marked_json({Marked.of("k", TEMPLATE): Marked.of("v", MARKS[Origin.USER])})
    assert set(mixed.marks) == {TEMPLATE, MARKS[Origin.USER]}
    assert set(marked_json({"k": 1}).marks) == {UNKNOWN}
    two = marked_json([Marked.of("a", TOOLS), Marked.of("b", MARKS[Origin.USER])])
    assert two.marks[0] == UNKNOWN


def test_the_sandbox_has_the_hugging_face_filter() -> None:
    """Spacing, escapes and characters as `transformers` writes them."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    source = "{{ messages[0].content | tojson }}{{ {'a': [1, messages[0].content]} | tojson(indent=2) }}"
    content = 'é "quoted"\n<b>\\'
    official: jinja2.Template = _compile_jinja_template(source)
    template = _template(source + "{{ messages[-1].content }}")
    shown = template.render(Conversation([Message("user", content)]))
    assert str.__str__(shown) == official.render(messages=[{"role": "user", "content": content}]) + content
