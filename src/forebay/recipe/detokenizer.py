"""Token ids to text, as they come, without ever emitting half a character.

Each token is looked at once: its bytes go through an incremental UTF-8 decoder, so the cost of a push is that of the
new tokens. The concatenation of all that `push` and `finish` return equals decoding all ids at once, wherever the
stream was cut.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from forebay.recipe.vocabulary import Prefix, Vocabulary


class Detokenizer:
    """Decodes one answer. Control tokens give no text; bytes that are no UTF-8 give U+FFFD, as in a full decode.

    `prompt_ids` matters to vocabularies that put a space before text: an answer that goes on behind a prompt's text
    keeps its first space, one that begins a text of its own loses it.
    """

    def __init__(self, vocabulary: Vocabulary, prompt_ids: Sequence[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        follows_text = bool(prompt_ids) and not vocabulary.is_control(prompt_ids[-1])
        self._drop_space = vocabulary.prefix is not Prefix.NONE and not follows_text

    def push(self, ids: Sequence[int]) -> str:
        """Take new tokens; return the text that is complete with them, which may be empty."""
        return self._decoder.decode(self._bytes_of(ids))

    def finish(self) -> str:
        """Return what was held back: U+FFFD when the answer ends within a character, else nothing."""
        return self._decoder.decode(b"", True)

    def _bytes_of(self, ids: Sequence[int]) -> bytes:
        vocabulary = self._vocabulary
        raw = b"".join([vocabulary.token_bytes(token) for token in ids if not vocabulary.is_control(token)])
        if self._drop_space and raw:
            self._drop_space = False
            raw = raw.removeprefix(b" ")
        return raw
