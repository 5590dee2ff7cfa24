"""The recipe of one model: conversations to prompts, ids to text. Everything that a model's own files say about
text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Literal

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.core.gguf import read_gguf
from forebay.core.grammar import GrammarSpec
from forebay.core.prompt import Origin, Prompt
from forebay.recipe.conversation import Conversation, check_fields
from forebay.recipe.delimiters import Delimiters
from forebay.recipe.detokenizer import Detokenizer
from forebay.recipe.encoder import PromptEncoder
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.grammar import GrammarCompiler, grammar_tokens
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.markers import FoundMarker, MarkerFinder
from forebay.recipe.order import RoleOrder, check_order, order_of
from forebay.recipe.parsers import ParserSpec
from forebay.recipe.pieces import Piece, Text
from forebay.recipe.selection import answer_ends, choose_template, delimiters_of
from forebay.recipe.selftest import check_text_is_plain
from forebay.recipe.strings import check_unicode
from forebay.recipe.vocabulary import TokenizerParts, Vocabulary


class Recipe:
    """How one model's text is made and read. Safe to use from several threads."""

    def __init__(self, parts: TokenizerParts, now: Callable[[], datetime] = datetime.now) -> None:
        """Prove that text can't become control tokens, then choose the chat template; see `load` for what is raised.

        `now` is the clock of templates that state the date.
        """
        self._vocabulary = Vocabulary(parts)
        check_text_is_plain(self._vocabulary)
        self._template = choose_template(parts, self._vocabulary, now)
        self.delimiters = frozenset(() if self._template is None else delimiters_of(self._template))
        """What the template delimits turns with that is plain text; a typed one never has the ids of a real one."""
        self._markers = MarkerFinder([*self._vocabulary.control, *self.delimiters])
        self._encoder = PromptEncoder(self._vocabulary, Delimiters(self._vocabulary, self.delimiters))
        self._order: RoleOrder = getattr(self._template, "order", None) or order_of(self.template_name)
        ends = () if self._template is None else answer_ends(self._template, self._vocabulary)
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys([*parts.stop_ids, *ends]))
        self.knows_thinking = "enable_thinking" in (parts.chat_template or "") or bool(
            getattr(self._template, "knows_thinking", False)
        )
        """Whether the chat template has a switch for reasoning."""
        self.parsers = ParserSpec.of(self.template_name, self._vocabulary, parts.chat_template)
        """How this model's answers are read: reasoning, text, tool calls."""
        self._grammars: GrammarCompiler | None = None
        self._grammar_lock = Lock()

    @classmethod
    def load(cls, path: Path, kind: Literal["gguf", "hf"]) -> Recipe:
        """Read a GGUF file, or a Hugging Face folder.

        Raises UnsupportedModelError that names what is missing, or the token whose spelling leaks.
        """
        return cls(hf_parts(path) if kind == "hf" else gguf_parts(read_gguf(path).metadata))

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        return self._vocabulary.size

    @property
    def template_name(self) -> str:
        """Which chat template is used: `chatml`, `llama3`, …; `jinja` for the model's own, `none` when it has none."""
        return "none" if self._template is None else self._template.name

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model."""
        return self._vocabulary

    def encode_chat(self, conversation: Conversation, *, continue_final: bool = False) -> Prompt:
        """The prompt that asks for the assistant's next message, or with `continue_final` for the rest of its last one.

        Raises InvalidRequestError whose `param` is a dotted path such as `messages.3.role`; ConversationError, which is
        one too, where roles are out of order.
        """
        return self._encoder.encode(self.pieces(conversation, continue_final=continue_final))

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """What `encode_chat` encodes, for those who show or check it. Raises the same errors."""
        if self._template is None:
            raise InvalidRequestError("This model has no chat template; ask for a completion of bare text.", "messages")
        check_fields(conversation)
        check_order(self._order, conversation, continue_final=continue_final)
        check_unicode(conversation)
        if conversation.thinking and not self.knows_thinking:
            raise InvalidRequestError("This model's chat template has no switch for reasoning.", "thinking")
        return self._template.pieces(conversation, continue_final=continue_final)

    def check_markers(self, conversation: Conversation) -> None:
        """For strict mode: raise ConversationError, with the path, the offset and the marker, when a client wrote a
        control token's spelling, a delimiter of the template, or what looks like one, anywhere in a conversation.

        `encode_chat` doesn't need it: to that, markers are text. Call it before, for the requests that want it.
        """
        self._markers.check(conversation)

    def find_marker(self, text: str) -> FoundMarker | None:
        """The same for one text, such as a stop string: the first marker, None when there is none."""
        return self._markers.find(text)

    def encode_text(self, text: str) -> Prompt:
        """The prompt that continues bare text: BOS if the model expects one, then the text, all of it plain."""
        return self._encoder.encode([Text(text, Origin.USER)])

    def check_grammar(self, grammar: GrammarSpec, param: str | None = None) -> None:
        """Raise InvalidRequestError, for `param`, when answers of this model can't be held to a grammar.

        Blocking: compiling may take a tenth of a second, and the first call reads the vocabulary, about a second.
        """
        with self._grammar_lock:
            if self._grammars is None:
                try:
                    self._grammars = GrammarCompiler(grammar_tokens(self._vocabulary, self.stop_token_ids))
                except UnsupportedModelError as error:
                    raise InvalidRequestError(str(error), param) from error
        self._grammars.check(grammar, param)

    def plain_ids(self, text: str) -> list[int]:
        """The ids of bare text, with no BOS and no control token."""
        return self._vocabulary.plain_ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control tokens give none."""
        detokenizer = self.detokenizer()
        return detokenizer.push(ids) + detokenizer.finish()

    def token_text(self, token_id: int) -> str:
        """One token as text, control tokens by their spelling; U+FFFD stands for bytes that are no whole character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """One token's bytes, control tokens by their spelling; empty for an id that the vocabulary doesn't have."""
        return self._vocabulary.token_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        """Whether the id is a control token's."""
        return self._vocabulary.is_control(token_id)

    def detokenizer(self, prompt_ids: Sequence[int] = ()) -> Detokenizer:
        """A decoder for one answer; pass the prompt's ids when the answer goes on behind bare text."""
        return Detokenizer(self._vocabulary, prompt_ids)
