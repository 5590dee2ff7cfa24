"""A model's tokens: which are control, text to ids without control tokens, ids to bytes.

The one door from text to ids is here, and it can't return a control id: the tokenizer behind it knows no control token,
and what it returns is checked all the same. There is deliberately no method that encodes text with control tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tokenizers import Encoding, Tokenizer

from forebay.core.errors import InvalidRequestError
from forebay.recipe.conversation import Conversation

_LONG: Final = 4096
"""From this many characters on it pays to have the library use its threads, and leave out the places of tokens where
nobody asks for them."""
Reference = Callable[[Conversation, bool], Sequence[int] | None]
"""What a library of the model's maker encodes: a conversation, and whether its last message is continued, to ids; None
for a conversation that it refuses."""


class Scheme(Enum):
    """How a token's spelling stands for bytes."""

    BYTE_LEVEL = "byte-level"
    """Each character of the spelling is one byte, in GPT-2's alphabet."""
    SENTENCEPIECE = "sentencepiece"
    """The spelling is the text, with ▁ for a space and <0xNN> for a byte."""


class Prefix(Enum):
    """Where the tokenizer puts a space before text."""

    NONE = "none"
    START = "start"
    """Only at the very start of the prompt."""
    RUN = "run"
    """At the start and behind every control token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """What a model's files say about its text."""

    plain: Tokenizer
    """Knows no control token."""
    continued: Tokenizer
    """The same, but puts no space before the text; the same object when `plain` doesn't either."""
    scheme: Scheme
    prefix: Prefix
    size: int
    """Number of ids: the largest one plus 1."""
    control: Mapping[str, int]
    """Every control token's id by its spelling."""
    content: Mapping[int, str] = field(default_factory=dict)
    """Added tokens that are ordinary text, spelled as that text."""
    bos_id: int | None
    adds_bos: bool
    """Whether the model was trained with BOS before every prompt."""
    stop_ids: tuple[int, ...]
    chat_template: str | None
    named: Mapping[str, str] = field(default_factory=dict)
    """The spellings that templates know as `bos_token`, `eos_token` and so on."""
    swallows_before: frozenset[int] = frozenset()
    """Control tokens that take white space off the text before them."""
    swallows_behind: frozenset[int] = frozenset()
    """The same for the text behind them."""
    reference: Reference | None = None
    """For a model without a chat template whose maker's library says how conversations are encoded."""


class Vocabulary:
    """The tokens of one model."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._plain = parts.plain
        self._continued = parts.continued
        self._content = parts.content
        self.scheme = parts.scheme
        self.prefix = parts.prefix
        self.size = parts.size
        self.control = parts.control
        self.control_ids: frozenset[int] = frozenset(parts.control.values())
        self.swallows_before = parts.swallows_before
        self.swallows_behind = parts.swallows_behind
        self.bos_id = parts.bos_id
        self.adds_bos = parts.adds_bos and parts.bos_id is not None
        self._spelling_of = {token_id: spelling for spelling, token_id in parts.control.items()}
        self._bytes: dict[int, bytes] = {}

    def plain_ids(self, text: str, *, continued: bool = False) -> list[int]:
        """Encode text; no id is a control token's. `continued`: it follows other text, so no space is put first.

        Raises InvalidRequestError for text that is no Unicode, or that the tokenizer would turn into a control token.
        """
        return self.plain_batch([text], continued=continued)[0]

    def plain_batch(self, texts: Sequence[str], *, continued: bool = False) -> list[list[int]]:
        """`plain_ids` of each text; many or long ones side by side on all processors."""
        return [self._checked(encoding.ids) for encoding in self._encoded(texts, continued, places=False)]

    def plain_encoding(self, text: str, *, continued: bool = False) -> tuple[list[int], list[tuple[int, int]]]:
        """Like `plain_ids`, with the characters [start, end) of the text that each token stands for."""
        [encoding] = self._encoded([text], continued, places=True)
        return self._checked(encoding.ids), encoding.offsets

    def plain_runs(self, texts: Sequence[str], *, continued: bool = False) -> list[EncodedRun]:
        """Like `plain_encoding` of each text, for those of which only some places matter."""
        encodings = self._encoded(texts, continued, places=True)
        return [
            EncodedRun(self._checked(encoding.ids), encoding, len(text))
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _encoded(self, texts: Sequence[str], continued: bool, *, places: bool) -> list[Encoding]:
        tokenizer = self._continued if continued else self._plain
        try:
            if sum(map(len, texts)) < _LONG:
                return [tokenizer.encode(text, add_special_tokens=False) for text in texts]
            batch = tokenizer.encode_batch if places else tokenizer.encode_batch_fast
            return batch(list(texts), add_special_tokens=False)
        except TypeError as error:  # the library's way to refuse a string that has no UTF-8
            raise InvalidRequestError("The text holds a lone surrogate, which is not a character.") from error

    def unchecked_batch(self, texts: list[str], *, continued: bool = False) -> list[list[int]]:
        """Encode many texts for the self-test, which looks for control ids itself."""
        tokenizer = self._continued if continued else self._plain
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def is_control(self, token_id: int) -> bool:
        """Whether the id is a control token's."""
        return token_id in self.control_ids

    def control_id(self, spelling: str) -> int:
        """The id of a control token. Raises KeyError when there is none of that spelling."""
        return self.control[spelling]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; a control token's are its spelling. Empty for an unknown id."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        spelling = self._spelling_of.get(token_id, self._content.get(token_id))
        if spelling is not None:
            return spelling.encode()
        spelling = self._plain.id_to_token(token_id) if 0 <= token_id < self.size else None
        if spelling is None:
            return b""
        return _byte_level(spelling) if self.scheme is Scheme.BYTE_LEVEL else _sentencepiece(spelling)

    def _checked(self, ids: list[int]) -> list[int]:
        if not self.control_ids.isdisjoint(ids):
            leaked = next(token_id for token_id in ids if token_id in self.control_ids)
            raise InvalidRequestError(
                f"The model's tokenizer turns a part of this text into the control token "
                f"{self._spelling_of[leaked]!r}, so the text can't be served safely."
            )
        return ids


@dataclass(frozen=True, slots=True)
class EncodedRun:
    """Ids, and which characters some of them stand for."""

    ids: list[int]
    encoding: Encoding
    length: int
    """Of the text, in characters."""

    def around(self, place: int) -> tuple[int, int]:
        """(before, behind): ids[:before] end at or before this character, ids[behind:] begin at or behind it, and those
        between cross it."""
        # A normaliser may drop characters, which then belong to no token.
        tokens = (self.encoding.char_to_token(at) for at in range(place, self.length))
        token = next((each for each in tokens if each is not None), None)
        behind = len(self.ids) if token is None else token
        before = behind
        while before > 0 and self.characters(before - 1)[1] > place:
            before -= 1
        while behind < len(self.ids) and self.characters(behind)[0] < place:
            behind += 1
        return before, behind

    def characters(self, token: int) -> tuple[int, int]:
        """The characters [start, end) of one token."""
        found = self.encoding.token_to_chars(token)
        return (0, 0) if found is None else found


def _gpt2_alphabet() -> dict[str, int]:
    """The byte of each character of GPT-2's alphabet: printable ones stand for themselves, others for 256 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF: Final = _gpt2_alphabet()
_CHARACTER_OF: Final = {byte: character for character, byte in _BYTE_OF.items()}


def byte_spelling(data: bytes) -> str:
    """Bytes in GPT-2's alphabet, as byte-level vocabularies spell them."""
    return "".join(_CHARACTER_OF[byte] for byte in data)


def _byte_level(spelling: str) -> bytes:
    """A spelling outside the alphabet stands for itself, as in a full decode."""
    try:
        return bytes([_BYTE_OF[character] for character in spelling])
    except KeyError:
        return spelling.encode()


def _sentencepiece(spelling: str) -> bytes:
    if len(spelling) == 6 and spelling.startswith("<0x") and spelling.endswith(">"):
        return bytes([int(spelling[3:5], 16)])
    return spelling.replace("▁", " ").encode()
