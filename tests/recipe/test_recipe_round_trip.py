"""What a typed template writes for a call is what the format's parser reads and its grammar allows; what is typed in
any field of a call or a tool stays text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import property_test
from tests.recipe.published_models import CALL, MODELS, RESULT, STOP, STOPPED, TOOLS, folder_of, recipe_of

from forebay.core.prompt import Origin, Span
from forebay.core.request import FinishReason
from forebay.recipe import Conversation, KeptAnswer, Message, Recipe, ToolCall, ToolSpec
from forebay.recipe.call_ids import is_nine_characters, nine_characters
from forebay.recipe.corpus_run import run_corpus
from forebay.recipe.grammar import GrammarCompiler, GrammarTool, grammar_tokens, tool_grammar
from forebay.recipe.parsers import Problem, ProblemKind, Tool, ToolCallArguments, ToolCallStart
from forebay.recipe.templates.json_text import respaced, written

_MODELS: Final = {model.origin: model for model in MODELS if model.tools}
_ASKED: Final = [Message("system", "Help."), Message("user", "What is the weather?")]
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    """Models with tools, by template."""
    return {origin: recipe_of(folder_of(model, tmp_path_factory.mktemp("round"))) for origin, model in _MODELS.items()}


def _answer(recipe: Recipe, calls: list[ToolCall], results: list[Message]) -> list[int]:
    """The ids of a message that is these calls, as the model would have written it, without the one that ends it."""
    asked = recipe.encode_chat(Conversation(_ASKED, TOOLS)).ids
    whole = recipe.encode_chat(Conversation([*_ASKED, Message("assistant", "", calls=calls), *results], TOOLS)).ids
    assert whole[: len(asked)] == asked
    rest = whole[len(asked) :]
    return rest[: next(at for at, token in enumerate(rest) if token in recipe.stop_token_ids)]


def _read(recipe: Recipe, ids: list[int]) -> list[ToolCall]:
    """The calls that the parser hears, with ids of the server where the format has none."""
    parsing = recipe.parsers.parser(
        recipe.detokenizer(), tools=[Tool(tool.name) for tool in TOOLS], stop_ids=recipe.stop_token_ids
    )
    events = [event for token in ids for event in parsing.push([token])] + parsing.finish(FinishReason.STOP)
    problems = [event.kind for event in events if isinstance(event, Problem)]
    assert problems in ([], [ProblemKind.DUPLICATE_FIELD])
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    return [
        ToolCall(
            start.id,
            start.name,
            "".join(
                event.fragment
                for event in events
                if isinstance(event, ToolCallArguments) and event.index == start.index
            ),
        )
        for start in starts
    ]


@pytest.mark.parametrize("origin", sorted(_MODELS))
def test_a_rendered_call_is_read_back(recipes: dict[str, Recipe], origin: str) -> None:
    sent = ToolCall(CALL.id, CALL.name, '{"place": "Ås", "n": 1.10, "big": 12345678901234567890123, "n": {"a": []}}')
    [heard] = _read(recipes[origin], _answer(recipes[origin], [sent], [RESULT]))
    assert (heard.name, heard.arguments) == (sent.name, sent.arguments)
    if recipes[origin].template_name == "mistral-v11":
        assert heard.id == sent.id
    assert is_nine_characters(heard.id) == origin.startswith("mistralai")


@pytest.mark.parametrize("origin", [origin for origin, model in sorted(_MODELS.items()) if model.calls > 1])
def test_two_rendered_calls_are_read_back(recipes: dict[str, Recipe], origin: str) -> None:
    heard = _read(recipes[origin], _answer(recipes[origin], [CALL, STOP], [RESULT, STOPPED]))
    assert [(call.name, call.arguments) for call in heard] == [(call.name, call.arguments) for call in (CALL, STOP)]


@pytest.mark.parametrize("origin", sorted(_MODELS))
def test_the_grammar_of_required_calls_allows_what_the_template_writes(recipes: dict[str, Recipe], origin: str) -> None:
    recipe = recipes[origin]
    tools = [GrammarTool(tool.name, {"type": "object"}) for tool in TOOLS]
    grammar = tool_grammar(recipe.parsers, tools, required=True)
    assert grammar is not None
    compiler = GrammarCompiler(grammar_tokens(recipe.vocabulary, recipe.stop_token_ids))
    calls, results = ([CALL, STOP], [RESULT, STOPPED]) if _MODELS[origin].calls > 1 else ([CALL], [RESULT])
    matcher = compiler.matcher(grammar)
    matcher.follow(_answer(recipe, calls, results))  # raises DeadEndError for what is not allowed
    assert matcher.accepting


@property_test
@given(values=st.dictionaries(st.text(max_size=6), _JSON, max_size=4), origin=st.sampled_from(sorted(_MODELS)))
def test_any_arguments_are_read_back_as_they_were_sent(
    recipes: dict[str, Recipe], values: dict[str, object], origin: str
) -> None:
    sent = ToolCall(CALL.id, CALL.name, written(values))
    [heard] = _read(recipes[origin], _answer(recipes[origin], [sent], [RESULT]))
    assert heard.arguments == sent.arguments == respaced(sent.arguments)


@pytest.mark.parametrize("origin", sorted(_MODELS))
def test_a_kept_answer_goes_in_as_the_model_wrote_it(recipes: dict[str, Recipe], origin: str) -> None:
    """Spaced as no template would write it, with two calls where the template takes one, and with text before it."""
    recipe = recipes[origin]
    kept = [*recipe.plain_ids('Look:  {"odd" :1}'), *_answer(recipe, [CALL], [RESULT])]
    message = Message("assistant", "Look", calls=[CALL], kept=KeptAnswer(kept))
    prompt = recipe.encode_chat(Conversation([*_ASKED, message, RESULT], TOOLS)).ids
    asked = recipe.encode_chat(Conversation(_ASKED, TOOLS)).ids
    assert prompt[: len(asked) + len(kept)] == asked + kept
    assert prompt[len(asked) + len(kept)] in recipe.stop_token_ids


@pytest.mark.parametrize("swapped", [False, True])
def test_results_name_the_calls_of_a_kept_answer_as_the_model_did(recipes: dict[str, Recipe], swapped: bool) -> None:
    """Nemo writes the id behind the arguments, when the client has long been told another."""
    recipe = recipes["mistralai-Mistral-Nemo-Instruct-2407"]
    kept = KeptAnswer(_answer(recipe, [CALL, STOP], [RESULT, STOPPED]))
    calls = [ToolCall("client001", CALL.name, CALL.arguments), ToolCall("client002", STOP.name, STOP.arguments)]
    results = [Message("tool", "1", call_id="client001"), Message("tool", "2", call_id="client002")]
    history = [*_ASKED, Message("assistant", "", calls=calls, kept=kept), *(results[::-1] if swapped else results)]
    spelled = _spelled(recipe, [*history, Message("assistant", "Done."), Message("user", "Thanks")])
    named = [f'{{"content": 1, "call_id": "{CALL.id}"}}', f'{{"content": 2, "call_id": "{STOP.id}"}}']
    for text in named:
        assert text in spelled
    assert (spelled.index(named[0]) > spelled.index(named[1])) == swapped
    assert "client00" not in spelled
    assert "client001" in _spelled(recipe, [*_ASKED, Message("assistant", "", calls=calls), *results])


@pytest.mark.parametrize(
    "written",
    ['[TOOL_CALLS][{"name": "x"', "[TOOL_CALLS]{}", "[TOOL_CALLS][1, 2]", "[TOOL_CALLS][][TOOL_CALLS][]", "x"],
)
def test_a_kept_answer_that_is_no_array_of_the_calls_changes_no_id(recipes: dict[str, Recipe], written: str) -> None:
    recipe = recipes["mistralai-Mistral-Nemo-Instruct-2407"]
    begin, *texts = written.split("[TOOL_CALLS]")
    ids = recipe.plain_ids(begin) + [
        token for text in texts for token in (recipe.vocabulary.control_id("[TOOL_CALLS]"), *recipe.plain_ids(text))
    ]
    calls = [ToolCall("client001", "a", "{}"), ToolCall("client002", "b", "{}")]
    results = [Message("tool", "1", call_id="client001"), Message("tool", "2", call_id="client002")]
    spelled = _spelled(recipe, [*_ASKED, Message("assistant", "", calls=calls, kept=KeptAnswer(ids)), *results])
    assert '"call_id": "client001"' in spelled


def _spelled(recipe: Recipe, messages: list[Message]) -> str:
    ids = recipe.encode_chat(Conversation(messages, TOOLS)).ids
    return b"".join(map(recipe.token_bytes, ids)).decode()


def _fields(text: str) -> Iterator[tuple[str, Conversation]]:
    """A conversation with the text in each field that a client writes."""
    tool = ToolSpec("look", "Look.", {"type": "object", "properties": {"place": {"enum": ["a"]}}})
    call, result = ToolCall("aB3dE6gH9", "look", '{"a": "b"}'), Message("tool", "r", call_id="aB3dE6gH9")
    for name, offered in (
        ("tool name", ToolSpec(text, "Look.", tool.parameters)),
        ("description", ToolSpec("look", text, tool.parameters)),
        ("schema key", ToolSpec("look", "Look.", {"type": "object", "properties": {text: {"type": "string"}}})),
        ("enum", ToolSpec("look", "Look.", {"type": "object", "properties": {"place": {"enum": [text]}}})),
    ):
        yield name, Conversation(_ASKED, [offered])
    for name, made in (
        ("call id", ToolCall(text, "look", '{"a": "b"}')),
        ("call name", ToolCall("aB3dE6gH9", text, '{"a": "b"}')),
        ("argument key", ToolCall("aB3dE6gH9", "look", f'{{"{text}": "b"}}')),
        ("argument", ToolCall("aB3dE6gH9", "look", f'{{"a": "{text}"}}')),
        ("arguments", ToolCall("aB3dE6gH9", "look", text)),
    ):
        answered = Message("tool", "r", call_id=made.id)
        yield name, Conversation([*_ASKED, Message("assistant", "", calls=[made]), answered], [tool])
    history = [*_ASKED, Message("assistant", "", calls=[call])]
    yield "result", Conversation([*history, Message("tool", text, call_id=call.id)], [tool])
    yield "json result", Conversation([*history, Message("tool", f'{{"a": "{text}"}}', call_id=call.id)], [tool])
    yield "answer", Conversation([*history, result, Message("assistant", text), Message("user", "x")], [tool])
    yield "question", Conversation([Message("system", text), Message("user", text)], [tool])


def _controls(recipe: Recipe, conversation: Conversation) -> list[int]:
    return [token for token in recipe.encode_chat(conversation).ids if recipe.is_control(token)]


@pytest.mark.parametrize("origin", sorted(_MODELS))
def test_markers_typed_in_any_field_stay_text(recipes: dict[str, Recipe], origin: str) -> None:
    recipe = recipes[origin]
    harmless = dict(_fields("x"))
    for spelling in _MODELS[origin].spec.tokens:
        for field, conversation in _fields(f"{spelling}\u0301 {spelling}"):
            assert _controls(recipe, conversation) == _controls(recipe, harmless[field]), (spelling, field)
            prompt = recipe.encode_chat(conversation)
            typed = {prompt.ids[at] for span in prompt.spans if span.origin is not Origin.TEMPLATE for at in _of(span)}
            assert not any(map(recipe.is_control, typed))


def _of(span: Span) -> range:
    return range(span.start, span.end)


def test_the_injection_corpus_forges_nothing_where_calls_have_tokens_of_their_own(recipes: dict[str, Recipe]) -> None:
    report = run_corpus(recipes["mistralai-Ministral-3-14B-Reasoning-2512"], lambda stage, share: None)
    assert report.clean, report.examples
    assert report.fields["content of user"].shown


def test_ids_of_nine_characters_are_kept_and_others_mapped() -> None:
    assert nine_characters("aB3dE6gH9") == "aB3dE6gH9"
    mapped = [nine_characters(text) for text in ("", "call_1", "call_2", "aB3dE6gH9x", "[/INST]", "\ud800", "é" * 9)]
    assert all(map(is_nine_characters, mapped))
    assert len(set(mapped)) == len(mapped)
