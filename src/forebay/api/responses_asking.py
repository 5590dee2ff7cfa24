"""A Responses request → what it asks of its prompt, its answer and the sampling. It runs nothing."""

from __future__ import annotations

from typing import Any, Final

from forebay.api.asking import Ask, Path, ToolChoice
from forebay.api.config import ApiConfig
from forebay.api.grammars import schema_grammar
from forebay.api.openai_types import reject_unsupported
from forebay.api.ports import RecipePort
from forebay.api.responses_history import Inputs
from forebay.api.responses_prompt import CUSTOM_FIELD, Prompt, prompt_of
from forebay.api.responses_types import (
    UNSUPPORTED,
    UNSUPPORTED_REASONING,
    UNSUPPORTED_TEXT,
    FunctionTool,
    NamedTool,
    ObjectText,
    PromptFields,
    ResponsesRequest,
    SchemaText,
    SomeTools,
)
from forebay.api.sampling import Sampling, at_most_logprobs, seed_of
from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.core.request import SamplingParams
from forebay.recipe import Conversation, ToolSpec

_FORMAT: Final = "text.format"
_CUSTOM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {CUSTOM_FIELD: {"type": "string"}},
    "required": [CUSTOM_FIELD],
}


def check_prompt_fields(body: PromptFields) -> None:
    """Raise InvalidRequestError for fields that we can't honour."""
    reject_unsupported(body, UNSUPPORTED)
    if body.reasoning is not None:
        reject_unsupported(body.reasoning, UNSUPPORTED_REASONING, "reasoning.")
    if body.text is not None:
        reject_unsupported(body.text, UNSUPPORTED_TEXT, "text.")


def check_fields(body: ResponsesRequest) -> None:
    """Raise InvalidRequestError for fields that we can't honour or that contradict each other."""
    check_prompt_fields(body)
    if body.stream_options is not None and not body.stream:
        raise InvalidRequestError("'stream_options' is only allowed when 'stream' is true.", "stream_options")
    if body.background and body.store is False:
        text = "A response that is made in the background has to be stored: leave 'store' out, or set it to true."
        raise InvalidRequestError(text, "store")


def ask_of(body: PromptFields, inputs: Inputs, config: ApiConfig) -> Ask:
    """All that a request asks of its prompt and its answer. Raises InvalidRequestError."""
    prompt = prompt_of(body.instructions, inputs.all)
    if len(prompt.messages) > config.max_messages:
        count, most = len(prompt.messages), config.max_messages
        text = f"The conversation has {count} messages; this server allows at most {most}."
        raise InvalidRequestError(text, "input")
    effort = None if body.reasoning is None else body.reasoning.effort
    return Ask(
        conversation=Conversation(
            prompt.messages,
            specs_of(body),
            thinking=False if effort == "none" else None,
            effort=None if effort == "none" else effort,
            system_last=True,
        ),
        choice=choice_of(body),
        parallel=body.parallel_tool_calls is not False,
        strict=frozenset(tool.name for tool in body.tools or () if isinstance(tool, FunctionTool) and tool.strict),
        format=_format(body),
        strict_markers=bool(body.strict_markers),
        format_param=_FORMAT,
        locate=lambda path: _located(path, prompt),
    )


def _located(path: Path, prompt: Prompt) -> Path:
    """Where a Responses request has what the recipe names."""
    if path[:1] == ("tools",):
        return path[:2] + (path[3:] if path[2:3] == ("function",) else path[2:])
    if path in (("thinking",), ("reasoning_effort",)):
        return ("reasoning", "effort")
    if path == ("messages",):
        return ("input",)
    if path[:1] == ("messages",) and len(path) > 1 and isinstance(path[1], int):
        return prompt.places[path[1]].of(path[2:])
    return path


def specs_of(body: PromptFields) -> list[ToolSpec]:
    """The tools as the recipe takes them. Raises InvalidRequestError for a name that is there twice."""
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(body.tools or ()):
        if tool.name in specs:
            text = f"There is more than one tool named '{tool.name}'."
            raise InvalidRequestError(text, f"tools.{index}.name")
        parameters = tool.parameters if isinstance(tool, FunctionTool) else _CUSTOM
        specs[tool.name] = ToolSpec(tool.name, tool.description or "", parameters)
    return list(specs.values())


def choice_of(body: PromptFields) -> ToolChoice:
    """The choice as `asking` takes it."""
    choice = body.tool_choice
    if isinstance(choice, NamedTool):
        return ToolChoice("named", choice.name)
    if isinstance(choice, SomeTools):
        return ToolChoice(choice.mode, allowed=frozenset(tool.name for tool in choice.tools))
    return ToolChoice(choice or "auto")


def _format(body: PromptFields) -> GrammarSpec | None:
    shape = None if body.text is None else body.text.format
    if isinstance(shape, SchemaText):
        return schema_grammar(shape.schema_, f"{_FORMAT}.schema")
    return GrammarSpec("json_object") if isinstance(shape, ObjectText) else None


def sampling_of(body: ResponsesRequest, config: ApiConfig, recipe: RecipePort) -> Sampling:
    """The sampling that a request asks for; without a maximum the answer may fill the context."""
    top = at_most_logprobs(body.top_logprobs, config, "top_logprobs")
    asked = top is not None or "message.output_text.logprobs" in (body.include or ())
    params = SamplingParams(
        max_tokens=1,
        temperature=1.0 if body.temperature is None else float(body.temperature),
        # Zero mass still keeps the most likely token.
        top_p=1.0 if body.top_p is None else max(float(body.top_p), 1e-6),
        seed=seed_of(body.seed),
        stop_token_ids=recipe.stop_token_ids,
        logprobs=(top or 0) if asked else None,
    )
    return Sampling(params, body.max_output_tokens, "max_output_tokens")
