"""Small models of each family: a tiny tokenizer with the family's tokens, and a chat template as the family's models have.

The templates are written out here without their parts for tools, which Forebay does not offer yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.jinja.sandbox import BoundedEnvironment

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXT: Final = (
    "The quick brown fox jumps over the lazy dog, and 17 + 25 = 42.",
    "system user assistant model INST SYS You are a helpful assistant named after nobody in particular.",
    "def square(x):\n    return x * x\n\n\nprint(square(12))",
    "émile went to 東京 🙂 and wrote: what's that?\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024",
    "im_start im_end start_header_id end_header_id begin_of_text eot_id think tool_call SYSTEM_PROMPT",
)


@dataclass(frozen=True)
class Spec:
    """What makes a family."""

    template: str
    tokens: Sequence[str]
    """Control tokens, the first ones bos and eos where `named` says so."""
    expected: str
    """The name of the typed template that has to be chosen."""
    named: dict[str, str] = field(default_factory=dict)
    adds_bos: bool = False
    unspecial: Sequence[str] = ()
    """Control tokens that the files don't call special."""
    content: Sequence[str] = ()
    """Added tokens that are ordinary text."""
    sentencepiece: bool = False


@dataclass(frozen=True)
class Family:
    """A recipe, and the oracle: the whole tokenizer, with control tokens, and plain Jinja."""

    name: str
    spec: Spec
    folder: Path
    recipe: Recipe
    whole: Tokenizer

    def rendered(self, conversation: Conversation, *, ask: bool = True) -> str:
        """The text that the official library would make."""
        from datetime import datetime

        template = BoundedEnvironment(lambda: datetime(2026, 2, 3)).from_string(self.spec.template)
        switches = {} if conversation.thinking is None else {"enable_thinking": conversation.thinking}
        return template.render(
            messages=[{"role": message.role, "content": message.content} for message in conversation.messages],
            add_generation_prompt=ask,
            **self.spec.named,
            **switches,
        )

    def official_ids(self, conversation: Conversation) -> list[int]:
        """What the official library would make of the conversation, with the BOS that the model was trained with."""
        ids = self.whole.encode(self.rendered(conversation), add_special_tokens=False).ids
        bos = self.whole.token_to_id(self.spec.named.get("bos_token", ""))
        return [bos, *ids] if self.spec.adds_bos and ids[:1] != [bos] else ids

    @property
    def control(self) -> list[str]:
        """All control spellings."""
        return [*self.spec.tokens, *self.spec.unspecial]


def talk(*turns: tuple[str, str], thinking: bool | None = None) -> Conversation:
    """A conversation from (role, text) pairs."""
    return Conversation([Message(role, text) for role, text in turns], thinking)  # type: ignore[arg-type]


_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_CHATML_DEFAULT = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant named after nobody.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_QWEN3 = """
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set reasoning = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
_LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
_LLAMA32 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
_LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
    "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
_MISTRAL_HEAD = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"
    "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}"
    "{{- bos_token }}{%- for message in loop_messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('After the optional system message, roles must alternate user/assistant/...') }}{%- endif %}"
)
_MISTRAL_V1 = _MISTRAL_HEAD + (
    "{%- if message['role'] == 'user' %}{%- if loop.first and system_message is defined %}"
    "{{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}{%- else %}"
    "{{- ' [INST] ' + message['content'] + ' [/INST]' }}{%- endif %}{%- elif message['role'] == 'assistant' %}"
    "{{- ' ' + message['content'] + eos_token}}{%- else %}{{- raise_exception('Only user and assistant roles!') }}"
    "{%- endif %}{%- endfor %}"
)
_MISTRAL_V3 = _MISTRAL_HEAD + (
    "{%- if message['role'] == 'user' %}{%- if loop.last and system_message is defined %}"
    "{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}{%- else %}"
    "{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- elif message['role'] == 'assistant' %}"
    "{{- ' ' + message['content']|trim + eos_token}}{%- else %}{{- raise_exception('Only user and assistant roles!') }}"
    "{%- endif %}{%- endfor %}"
)
_MISTRAL_TEKKEN = _MISTRAL_V3.replace("'[INST] '", "'[INST]'").replace(
    "' ' + message['content']|trim", "message['content']"
)
_MISTRAL_V7 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + '[/INST]' }}{% elif message['role'] == 'system' %}"
    "{{ '[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
_GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"
)
_PHI3 = (
    "{% for message in messages %}{{ '<|' ~ message.role ~ '|>\\n' ~ message.content ~ '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
_ZEPHYR = (
    "{% for message in messages %}\n{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)

_S = {"bos_token": "<s>", "eos_token": "</s>"}
_LLAMA3_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL_TOKENS = (
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
)
_IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA3_NAMED = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}

FAMILIES: Final[dict[str, Spec]] = {
    "chatml": Spec(_CHATML, _IM, "chatml", {"eos_token": "<|im_end|>"}),
    "chatml-default": Spec(_CHATML_DEFAULT, _IM, "chatml", {"eos_token": "<|im_end|>"}),
    "qwen3": Spec(
        _QWEN3,
        _IM,
        "qwen3",
        {"eos_token": "<|im_end|>"},
        unspecial=("<think>", "</think>", "<tool_call>", "</tool_call>"),
    ),
    "llama3": Spec(_LLAMA3, _LLAMA3_TOKENS, "llama3", _LLAMA3_NAMED, adds_bos=True),
    "llama3.2": Spec(_LLAMA32, _LLAMA3_TOKENS, "llama3.2", _LLAMA3_NAMED, adds_bos=True),
    "llama2": Spec(_LLAMA2, ("<unk>", "<s>", "</s>"), "llama2", _S, adds_bos=True, sentencepiece=True),
    "mistral-v1": Spec(_MISTRAL_V1, ("<unk>", "<s>", "</s>"), "mistral-v1", _S, adds_bos=True, sentencepiece=True),
    "mistral-v3": Spec(_MISTRAL_V3, ("<unk>", *_MISTRAL_TOKENS), "mistral-v3", _S, adds_bos=True, sentencepiece=True),
    "mistral-tekken": Spec(_MISTRAL_TEKKEN, _MISTRAL_TOKENS, "mistral-tekken", _S, adds_bos=True),
    "mistral-v7": Spec(_MISTRAL_V7, _MISTRAL_TOKENS, "jinja", _S, adds_bos=True),
    "gemma": Spec(
        _GEMMA,
        ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        "jinja",
        {"bos_token": "<bos>", "eos_token": "<eos>"},
        adds_bos=True,
        content=("\n\n", "<h1>", "</h1>"),
    ),
    "phi3": Spec(
        _PHI3,
        ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        "jinja",
        {"eos_token": "<|end|>"},
    ),
    "zephyr": Spec(_ZEPHYR, ("<unk>", "<s>", "</s>"), "jinja", _S, adds_bos=True, sentencepiece=True),
}


def build_family(name: str, folder: Path) -> Family:
    """Train the tokenizer, write the folder of a model and load it."""
    from datetime import datetime

    from forebay.recipe.hf_tokenizer import hf_parts

    spec = FAMILIES[name]
    whole = sentencepiece(spec) if spec.sentencepiece else byte_level(spec)
    write_folder(folder, whole, spec)
    recipe = Recipe(hf_parts(folder), now=lambda: datetime(2026, 2, 3))
    return Family(name, spec, folder, recipe, whole)


def write_folder(folder: Path, whole: Tokenizer, spec: Spec) -> None:
    """The files of a model's folder that the recipe reads."""
    whole.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"chat_template": spec.template, "add_bos_token": spec.adds_bos, **spec.named}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def byte_level(spec: Spec) -> Tokenizer:
    """A tiny byte-level BPE, as GPT-2, Llama 3 and Qwen have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(spec.content),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokenizer = _without_added(tokenizer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in spec.content])
    return _with_added(tokenizer, spec)


def sentencepiece(spec: Spec) -> Tokenizer:
    """A tiny BPE with byte fallback and a space before each text, as Llama 2 has."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    alphabet = [*map(chr, range(0x21, 0x7F)), "▁", "é"]
    pieces = [*spec.tokens, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=pieces,
        show_progress=False,
    )
    words = [word for line in TEXT for word in line.split()]
    tokenizer.train_from_iterator(words * 3, trainer)
    bare = json.loads(tokenizer.to_str())
    bare["added_tokens"] = []
    return _with_added(Tokenizer.from_str(json.dumps(bare)), spec)


def _without_added(tokenizer: Tokenizer) -> Tokenizer:
    bare = json.loads(tokenizer.to_str())
    bare["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(bare))


def _with_added(tokenizer: Tokenizer, spec: Spec) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in spec.tokens])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in spec.unspecial])
    return tokenizer
