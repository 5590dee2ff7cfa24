"""Each format's calls and reasoning, well made and badly."""

from __future__ import annotations

import pytest
from tests.recipe.parsers.answers import DSML, END, ids, parse, parser, read, spec, vocabulary

from forebay.core.request import FinishReason
from forebay.recipe.call_ids import is_nine_characters
from forebay.recipe.detokenizer import Detokenizer
from forebay.recipe.parsers import (
    AnswerEnd,
    Event,
    Problem,
    ProblemKind,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolFormat,
)

LOOK = '{"name": "look", "arguments": {"place": "Rome", "n": 1.10}}'
CALL = f"⟦<tool_call>⟧\n{LOOK}\n⟦</tool_call>⟧"
D = f"⟦{DSML}⟧"


def call(arguments: str = '{"place": "Rome", "n": 1.10}', name: str = "look", index: int = 0) -> list[Event]:
    """The events of a call that is well made."""
    return [
        ToolCallStart(index, f"id{index}", name),
        ToolCallArguments(index, arguments),
        ToolCallEnd(index),
    ]


def kinds(events: list[Event]) -> list[ProblemKind]:
    """What is wrong."""
    return [event.kind for event in events if isinstance(event, Problem)]


def without(events: list[Event]) -> list[Event]:
    """The events but for problems."""
    return [event for event in events if not isinstance(event, Problem)]


def test_text_before_between_and_after_calls_survives() -> None:
    events, end = parse("hermes", f"Before.\n{CALL} between {CALL}\nafter\n⟦{END}⟧")
    assert events == [
        TextDelta("Before."),
        *call(),
        TextDelta("\n between"),
        *call(index=1),
        TextDelta(" \nafter\n"),
    ]
    assert end is AnswerEnd.TOOL_CALLS


def test_reasoning_ends_with_its_token_only() -> None:
    events, _ = parse("hermes", "⟦<think>⟧\nSo </think>\n</think> and ⟦<tool_call>⟧{⟦</think>⟧\n\nYes.")
    assert without(events) == [
        ReasoningDelta("So </think>\n</think> and"),
        ReasoningDelta(" {"),
        TextDelta("Yes."),
    ]
    assert kinds(events) == [ProblemKind.UNEXPECTED_CONTROL]


def test_spelled_reasoning_begins_the_answer_and_ends_at_a_line() -> None:
    text = "⟦<think>⟧\nsay </think> or <think>\n⟦</think>⟧\nNow <think> no more </think>"
    events, _ = parse("hermes", text, tokens=False)
    assert events == [ReasoningDelta("say </think> or <think>"), TextDelta("Now <think> no more </think>")]


@pytest.mark.parametrize(
    ("tail", "is_open"),
    [("⟦<think>⟧\n", True), ("⟦<think>⟧ so far, ", True), ("⟦<think>⟧\n\n⟦</think>⟧\n\n", False), ("", False)],
)
def test_the_end_of_the_prompt_decides_whether_reasoning_is_open(tail: str, is_open: bool) -> None:
    prompt = ids("hermes", "⟦<think>⟧Hm.⟦</think>⟧ in history " + tail)
    assert parser("hermes", prompt=prompt).in_reasoning is is_open


def test_markers_within_strings_are_data() -> None:
    inner = '{"place": "a ⟦</tool_call>⟧ ⟦<tool_call>⟧ ⟦</think>⟧ </tool_call>"}'
    events, _ = parse("hermes", f'⟦<tool_call>⟧{{"name": "look", "arguments": {inner}}}⟦</tool_call>⟧')
    assert events == call('{"place": "a </tool_call> <tool_call> </think> </tool_call>"}')


def test_arguments_stream_while_they_come() -> None:
    parsing = parser("hermes")
    events: list[Event] = []
    seen = []
    for token in ids("hermes", CALL):
        events = parsing.push([token])
        seen += [event.fragment for event in events if isinstance(event, ToolCallArguments)]
    assert "".join(seen) == '{"place": "Rome", "n": 1.10}'
    assert len(seen) == len("".join(seen))


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"arguments": {"place": 1}, "name": "look"}', '{"place": 1}'),
        ('{"type": "function", "name": "look", "arguments": "{\\"place\\": 2}"}', '{"place": 2}'),
        ('{"name": "look", "parameters": {"place": {"a": [1, 1e3]}}}', '{"place": {"a": [1, 1e3]}}'),
    ],
)
def test_members_in_any_order_and_arguments_in_a_string(body: str, arguments: str) -> None:
    assert parse("hermes", f"⟦<tool_call>⟧{body}⟦</tool_call>⟧")[0] == call(arguments)


@pytest.mark.parametrize(
    ("body", "expected", "end"),
    [
        ('{"name": "look"}', [ProblemKind.MISSING_FIELD, ProblemKind.MISSING_FIELD], AnswerEnd.TOOL_CALLS),
        ('{"name": "look", "arguments": {}}', [ProblemKind.MISSING_FIELD], AnswerEnd.TOOL_CALLS),
        ('{"name": "nope", "arguments": {}}', [ProblemKind.UNKNOWN_TOOL], AnswerEnd.TOOL_CALLS),
        ('{"name": "run", "arguments": {"a": 1, "a": 2}}', [ProblemKind.DUPLICATE_FIELD], AnswerEnd.TOOL_CALLS),
        ('{"name": "look", "arguments": {"place": tru}}', [ProblemKind.INVALID_ARGUMENTS], AnswerEnd.MALFORMED),
        ('{"name": "look", "arguments": [1]}', [ProblemKind.INVALID_ARGUMENTS], AnswerEnd.MALFORMED),
        ('{"name": "look", "arguments": "{"}', [ProblemKind.INVALID_ARGUMENTS], AnswerEnd.MALFORMED),
        ('{"name": "look", "arguments": {"place": 1', [ProblemKind.INVALID_ARGUMENTS], AnswerEnd.MALFORMED),
        ('{"arguments": {}}', [ProblemKind.MALFORMED_CALL], AnswerEnd.STOP),
        ("look(place)", [ProblemKind.MALFORMED_CALL], AnswerEnd.STOP),
    ],
)
def test_what_is_wrong_with_a_call_is_reported(body: str, expected: list[ProblemKind], end: AnswerEnd) -> None:
    events, ended = parse("hermes", f"⟦<tool_call>⟧{body}⟦</tool_call>⟧ tail")
    assert (kinds(events), ended) == (expected, end)
    assert isinstance(events[-1], TextDelta)
    assert events[-1].text.endswith("tail")


def test_a_call_that_never_began_is_text() -> None:
    events, _ = parse("hermes", "⟦<tool_call>⟧look(place)⟦</tool_call>⟧")
    assert without(events) == [TextDelta("look(place)")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '⟦<tool_call>⟧{"name": "look", "arguments": {"place": "Ro'),
        ("hermes", '⟦<tool_call>⟧{"name": "look", "arguments": {"place": "Rome"}'),
        ("llama3", '{"name": "look", "parameters": {"place": "Ro'),
        ("mistral", '⟦[TOOL_CALLS]⟧look⟦[ARGS]⟧{"place": "Ro'),
        ("mistral", '⟦[TOOL_CALLS]⟧[{"name": "look", "arguments": {"place": "Ro'),
        ("dsml", f'<{D} calls><{D} invoke name="look"><{D} parameter name="place" string="true">Ro'),
        ("harmony", '⟦<|channel|>⟧commentary to=functions.look⟦<|message|>⟧{"place": "Ro'),
    ],
)
@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.STOP])
def test_a_truncated_call_ends_as_length_and_is_not_repaired(name: str, text: str, reason: FinishReason) -> None:
    events, end = parse(name, text, reason=reason)
    assert end is AnswerEnd.LENGTH
    assert kinds(events) == [ProblemKind.TRUNCATED_CALL]
    assert not any(isinstance(event, ToolCallEnd) for event in events)


@pytest.mark.parametrize("tag", ["", "⟦<|python_tag|>⟧"])
def test_llama3_calls_with_and_without_the_tag(tag: str) -> None:
    text = f'{tag}{{"name": "look", "parameters": {{"place": 1}}}}; {{"name": "run", "parameters": {{}}}}'
    assert parse("llama3", text)[0] == [*call('{"place": 1}'), *call("{}", "run", 1)]


@pytest.mark.parametrize(
    "text",
    [' {"name": "Bob", "age": 3} x', '{"name": "look"}', '{"a": [1', 'no {"name": "run", "parameters": {}}', "{x"],
)
def test_llama3_leaves_other_json_alone(text: str) -> None:
    assert parse("llama3", text) == ([TextDelta(text)], AnswerEnd.STOP)


def test_llama3_code_behind_the_tag_is_reported() -> None:
    events, _ = parse("llama3", "⟦<|python_tag|>⟧print(3)")
    assert (without(events), kinds(events)) == ([TextDelta("print(3)")], [ProblemKind.MALFORMED_CALL])


@pytest.mark.parametrize(
    "text",
    [
        '⟦[TOOL_CALLS]⟧[{"name": "look", "arguments": {"place": 1}}, {"name": "run", "arguments": {}, "id": "x"}]',
        '⟦[TOOL_CALLS]⟧look{"place": 1}⟦[TOOL_CALLS]⟧run{}',
        '⟦[TOOL_CALLS]⟧look⟦[ARGS]⟧{"place": 1}⟦[TOOL_CALLS]⟧run⟦[CALL_ID]⟧x⟦[ARGS]⟧{}',
    ],
)
def test_mistral_calls_in_all_forms(text: str) -> None:
    assert parse("mistral", f"Hi{text} bye")[0] == [
        TextDelta("Hi"),
        *call('{"place": 1}'),
        *call("{}", "run", 1),
        TextDelta(" bye"),
    ]


def test_mistral_id_of_the_model_is_the_calls_own_where_it_has_the_shape() -> None:
    events, _ = parse("mistral", "⟦[TOOL_CALLS]⟧run⟦[CALL_ID]⟧aB3dE6gH9⟦[ARGS]⟧{}")
    assert events[0] == ToolCallStart(0, "aB3dE6gH9", "run")
    parsing = spec("mistral").parser(Detokenizer(vocabulary("mistral")), tools=[Tool("run")])
    events, _ = read(parsing, ids("mistral", "⟦[TOOL_CALLS]⟧run⟦[ARGS]⟧{}"))
    assert isinstance(events[0], ToolCallStart)
    assert is_nine_characters(events[0].id)


@pytest.mark.parametrize(
    ("code", "name", "arguments"),
    [
        ('look.call(place="Rome")', "look", '{"place": "Rome"}'),
        ('run.call(a="x, y", b="say "hi" to me", c="")', "run", '{"a": "x, y", "b": "say \\"hi\\" to me", "c": ""}'),
        ("run.call()", "run", "{}"),
    ],
)
def test_llama3_calls_of_builtin_tools(code: str, name: str, arguments: str) -> None:
    assert parse("llama3", f"⟦<|python_tag|>⟧{code}") == (call(arguments, name), AnswerEnd.TOOL_CALLS)


@pytest.mark.parametrize("code", ['look.call(place="Rome"', "look.call(1)", 'import look\nlook.call(place="x")', "x"])
def test_llama3_other_code_is_no_call(code: str) -> None:
    events, _ = parse("llama3", f"⟦<|python_tag|>⟧{code}")
    assert (without(events), kinds(events)) == ([TextDelta(code)], [ProblemKind.MALFORMED_CALL])


@pytest.mark.parametrize("names", [("function_calls", "invoke", "parameter"), (" calls", " invoke", " parameter")])
@pytest.mark.parametrize("tokens", [True, False])
def test_dsml_becomes_json_argument_by_argument(names: tuple[str, str, str], tokens: bool) -> None:
    block, invoke, parameter = names
    text = (
        f'Hi\n\n<{D}{block}>\n<{D}{invoke} name="look">\n<{D}{parameter} name="place" string="true">a "q"\n<b>'
        f'</{D}{parameter}>\n<{D}{parameter} name="n" string="false"> [1.10, 12345678901234567890123] </{D}{parameter}>'
        f'\n</{D}{invoke}>\n<{D}{invoke} name="run">\n</{D}{invoke}>\n</{D}{block}> bye'
    )
    events, end = parse("dsml", text, tokens=tokens)
    arguments = '{"place": "a \\"q\\"\\n<b>", "n": [1.10, 12345678901234567890123]}'
    assert events == [
        TextDelta("Hi"),
        *call(arguments),
        *call("{}", "run", 1),
        TextDelta("\n\n bye"),
    ]
    assert end is AnswerEnd.TOOL_CALLS


@pytest.mark.parametrize(
    ("parameter", "arguments"),
    [
        (
            f'name="place" string="true"></{DSML}parameter> {D} <{D}x</',
            f'{{"place": "</{DSML}parameter> {DSML} <{DSML}x"}}',
        ),
        ('name="a b" string="true">1</', '{"a b": "1"}'),
        ('name="a"b\\" string="true">1</', '{"a\\"b\\\\": "1"}'),
        (f'name="a" string="false">"<{D} parameter"</', f'{{"a": "<{DSML} parameter"}}'),
    ],
)
def test_dsml_values_and_names_are_escaped(parameter: str, arguments: str) -> None:
    text = f'<{D} calls><{D} invoke name="run"><{D} parameter {parameter}{D} parameter></{D} invoke></{D} calls>'
    assert parse("dsml", text)[0] == call(arguments, "run")


@pytest.mark.parametrize("value", ["tru", "", "1 2", '"a\n"'])
def test_dsml_values_that_are_no_json_end_in_an_error(value: str) -> None:
    text = (
        f'<{D} calls><{D} invoke name="look"><{D} parameter name="place" string="false">{value}</{D} parameter>'
        f"</{D} invoke></{D} calls>x"
    )
    events, end = parse("dsml", text)
    assert end is AnswerEnd.MALFORMED
    assert kinds(events)[0] is ProblemKind.INVALID_ARGUMENTS
    assert events[-1] == TextDelta("x")


def test_a_stray_dsml_token_opens_nothing() -> None:
    events, end = parse("dsml", f"hi <{D}foo> there {D} bye <")
    assert without(events) == [TextDelta("hi <"), TextDelta("foo> there"), TextDelta("  bye <")]
    assert (kinds(events), end) == ([ProblemKind.UNEXPECTED_CONTROL] * 2, AnswerEnd.STOP)


def test_harmony_channels() -> None:
    start, channel, message, ended = "⟦<|start|>⟧assistant", "⟦<|channel|>⟧", "⟦<|message|>⟧", "⟦<|end|>⟧"
    text = (
        f"{channel}analysis{message}hm {ended}{start}{channel}commentary{message}I look.{ended}"
        f'{start} to=functions.look{channel}commentary ⟦<|constrain|>⟧json{message}{{"place": 1}}⟦<|call|>⟧'
    )
    events, end = parse("harmony", text)
    assert events == [ReasoningDelta("hm"), TextDelta("I look."), *call('{"place": 1}')]
    assert end is AnswerEnd.TOOL_CALLS
    assert parse("harmony", text.removesuffix("⟦<|call|>⟧")) == (events, end)


@pytest.mark.parametrize("header", ["", "junk", "⟦<|channel|>⟧", "⟦<|channel|>⟧⟦<|channel|>⟧weird", "x" * 3000])
def test_harmony_headers_that_are_wrong_are_reported(header: str) -> None:
    events, _ = parse("harmony", f"{header}⟦<|message|>⟧hello⟦<|end|>⟧")
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown.endswith("hello")
    assert kinds(events)


def test_without_tools_no_calls_are_looked_for() -> None:
    parsing = parser("hermes", tools=None)
    events, end = read(parsing, ids("hermes", "a ⟦<tool_call>⟧b"))
    assert (without(events), end) == ([TextDelta("a"), TextDelta(" b")], AnswerEnd.STOP)
    assert kinds(events) == [ProblemKind.UNEXPECTED_CONTROL]


def test_half_a_character_before_a_marker_does_not_join_what_follows() -> None:
    broken = [*ids("hermes", "é")[:1], *ids("hermes", "⟦<think>⟧"), *ids("hermes", "é")[1:]]
    events, _ = read(parser("hermes"), broken)
    assert events == [TextDelta("\ufffd"), ReasoningDelta("\ufffd")]


def test_the_format_follows_the_vocabulary_then_the_template() -> None:
    assert [spec(name).tool_format.value for name in ("hermes", "llama3", "mistral", "dsml", "harmony")] == [
        "hermes",
        "llama3",
        "mistral",
        "dsml",
        "harmony",
    ]
    assert spec("llama3", tokens=False).tool_format is ToolFormat.LLAMA3
    assert spec("mistral").reasoning is not None
    assert spec("harmony").reasoning is None


def test_ids_are_new_for_every_call_and_parser() -> None:
    vocab = vocabulary("hermes")
    starts = []
    for _ in range(2):
        parsing = spec("hermes").parser(Detokenizer(vocab), tools=[Tool("look")])
        events, _ = read(parsing, ids("hermes", CALL + CALL))
        starts += [event.id for event in events if isinstance(event, ToolCallStart)]
    assert len(set(starts)) == 4
    assert all(each.startswith("call_") for each in starts)


def test_the_end_is_known_only_behind_the_answer() -> None:
    with pytest.raises(ValueError, match="not ended"):
        parser("hermes").end  # noqa: B018 (the property raises)


def test_harmony_markers_in_plain_text_are_no_header() -> None:
    text = "<|channel|>analysis<|message|>⟦<|channel|>⟧final⟦<|message|>⟧<|start|>x"
    events, _ = parse("harmony", text)
    assert events == [TextDelta("<|start|>x")]
    assert without(parse("harmony", "<|start|>")[0]) == [TextDelta("<|start|>")]
