"""Makes the bf16 Hugging Face folder of the embedded SmolLM2 that peers such as vLLM read, and checks it against ours.

The weights are those of the GGUF, dequantised by our own reader (which also puts the rows of q and k back into the
order of a Hugging Face checkpoint); the tokenizer is transformers' conversion of the GGUF's. It is no way to load a
model for serving.

python bench/smollm2_hf.py FOLDER [--no-check]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from forebay.core.gguf import read_gguf
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.models import ModelConfig, describe, resolve
from forebay.models.tensors import hf_name, part_shapes
from forebay.models.weights_gguf import GgufWeights

PROMPTS = ("The capital of France is", "Water boils at", "def add(a, b):", "Once upon a time")
ANSWER_TOKENS = 24
TIE_LOGITS = 0.25
"""In bf16 two computations may choose differently where the two best logits are this close."""


def read_weights() -> tuple[dict[str, Tensor], ModelConfig, dict[str, Any]]:
    """All tensors in bf16 under their Hugging Face names, the model's config, and the GGUF's metadata."""
    source = resolve("smollm2")
    config, file = describe(source), read_gguf(source.path)
    reader = GgufWeights(file, config)
    tensors = {}
    for (part, layer), shape in part_shapes(config).items():
        tensor = torch.empty(shape, dtype=torch.bfloat16)
        reader.read_into(part, layer, tensor)
        tensors[hf_name(part, layer)] = tensor
    return tensors, config, file.metadata


def config_json(config: ModelConfig, metadata: dict[str, Any]) -> dict[str, Any]:
    """config.json of the same model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_model_len,
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": metadata["llama.rope.freq_base"],
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied_embeddings,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def write_folder(folder: Path) -> None:
    """Weights, config and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, config, metadata = read_weights()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_json(config, metadata), indent=2) + "\n")
    gguf = resolve("smollm2").path
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def ours(prompts: list[list[int]]) -> list[list[int]]:
    """Greedy answers of our engine, from the GGUF."""
    engine = build_engine(WorkerOptions(model="smollm2", kv_memory=64 << 20), lambda _stage, _share: None)
    answers: dict[str, list[int]] = {}
    for index, ids in enumerate(prompts):
        sampling = SamplingParams(max_tokens=ANSWER_TOKENS, min_tokens=ANSWER_TOKENS, temperature=0.0)
        engine.submit(GenerateRequest(id=str(index), prompt_ids=ids, sampling=sampling))
        answers[str(index)] = []
    while any(len(answer) < ANSWER_TOKENS for answer in answers.values()):
        for output in engine.step():
            answers[output.request_id] += output.token_ids
    return [answers[str(index)] for index in range(len(prompts))]


def check(folder: Path) -> None:
    """Compare our greedy answers from the GGUF with transformers' from the folder. Raises SystemExit when they differ.

    Where they part, the two tokens must have been within `TIE_LOGITS` of each other: bf16's roundings decide there.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    prompts = [tokenizer(text).input_ids for text in PROMPTS]
    for text, prompt, answer in zip(PROMPTS, prompts, ours(prompts), strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].float()
        gaps = logits.max(-1).values - logits[torch.arange(len(answer)), torch.tensor(answer)]
        same = int((gaps == 0).sum())
        print(f"{text!r} -> {tokenizer.decode(answer)!r}: {same} of {len(answer)} tokens, gap {gaps.max():.3f}")
        if gaps.max() > TIE_LOGITS:
            raise SystemExit("The folder does not generate what we generate from the GGUF.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    write_folder(options.folder)
    if options.check:
        check(options.folder)
    print(f"{options.folder} is ready.")


if __name__ == "__main__":
    main()
