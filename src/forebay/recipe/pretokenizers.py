"""How each kind of byte-level BPE cuts text into words before merging, by the name that GGUF files give it.

GGUF files hold the vocabulary and the merges, but of this rule only its name (`tokenizer.ggml.pre`). A wrong rule gives
wrong ids without any error, so an unknown name is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenizers import Regex, pre_tokenizers

from forebay.core.errors import UnsupportedModelError

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3: Final = _WORDS + r"|\p{N}{1,3}" + _TAIL
_QWEN2: Final = _WORDS + r"|\p{N}" + _TAIL
_QWEN35: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED: Final = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_SUFFIX: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O: Final = (
    _CASED.replace("|", _SUFFIX + "|") + _SUFFIX + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK3: Final = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN: Final = _CASED + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class WordRule:
    """Patterns that isolate words, applied one after the other, and what goes with them."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    """A word that is a token as a whole is that token, whatever the merges say."""
    adds_bos: bool = False
    """Whether BOS is put first where the file doesn't say."""

    def build(self, *, add_prefix_space: bool = False) -> pre_tokenizers.PreTokenizer:
        """The pre-tokenizer: the patterns, then bytes to GPT-2's alphabet."""
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns
        ]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=False))
        return pre_tokenizers.Sequence(steps)


_RULES: Final[dict[str, WordRule]] = {
    "gpt-2": WordRule((_GPT2,)),
    "default": WordRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "falcon": WordRule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "deepseek-coder": WordRule(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")
    ),
    "deepseek-v3": WordRule((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3)),
    "gpt-4o": WordRule((_GPT4O,), ignore_merges=True),
    "qwen35": WordRule((_QWEN35,)),
    "smollm": WordRule((r"\p{N}", _GPT2)),
    "llama-bpe": WordRule((_LLAMA3,), ignore_merges=True, adds_bos=True),
    "qwen2": WordRule((_QWEN2,)),
    "tekken": WordRule((_TEKKEN,), ignore_merges=True, adds_bos=True),
}
_SAME: Final[dict[str, str]] = {
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "starcoder": "smollm",
    "refact": "smollm",
    "command-r": "smollm",
    "phi-2": "gpt-2",
    "mpt": "gpt-2",
    "olmo": "gpt-2",
    "stablelm2": "qwen2",
}


def word_rule(name: str) -> WordRule:
    """The rule of `tokenizer.ggml.pre` = `name`. Raises UnsupportedModelError for one that isn't known."""
    rule = _RULES.get(_SAME.get(name, name))
    if rule is None:
        known = ", ".join(sorted(_RULES | _SAME))
        raise UnsupportedModelError(f"The tokenizer's pre-tokenizer {name!r} is not supported; supported are {known}.")
    return rule
