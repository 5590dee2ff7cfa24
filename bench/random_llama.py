"""Makes a Llama of about 1.1 billion random weights for `forebay bench compare`: a second shape beside SmolLM2's.

Writes FOLDER (Hugging Face, bf16), FOLDER.bf16.gguf, FOLDER.q8_0.gguf and FOLDER.q4_0.gguf, all from the same numbers.
Its text means nothing; only its speed counts. The tokenizer is SmolLM2's, so the vocabulary is its 49,152 tokens.

python bench/random_llama.py FOLDER --tokenizer SMOLLM2_FOLDER [--layers 22]
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from forebay.models import ModelConfig, resolve
from forebay.models.hf_config import read_hf_config
from forebay.models.tensors import Part, gguf_name, hf_name, part_shapes

HIDDEN, INNER, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 2048, 5632, 32, 4, 49152, 8192
KINDS = {
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}
ROPE_THETA, EPSILON = 10000.0, 1e-5


def write_config(folder: Path, layers: int) -> ModelConfig:
    """config.json, and what our reader makes of it."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "rope_theta": ROPE_THETA,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return read_hf_config(folder)


def random_weights(config: ModelConfig) -> Iterator[tuple[Part, int | None, Tensor]]:
    """Every tensor in bf16: norms of one, matrices that keep the size of what passes through them."""
    random = torch.Generator().manual_seed(1)
    for (part, layer), shape in part_shapes(config).items():
        if len(shape) == 1:
            yield part, layer, torch.ones(shape, dtype=torch.bfloat16)
        else:
            yield part, layer, torch.randn(shape, generator=random).mul_(shape[-1] ** -0.5).to(torch.bfloat16)


def interleaved(matrix: Tensor, heads: int) -> Tensor:
    """Rows of q or k in the order of a GGUF file, whose rotary pairs are neighbours; ours are half a head apart."""
    rows, columns = matrix.shape
    return matrix.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def write_folder(folder: Path, config: ModelConfig, tokenizer: Path) -> None:
    """The weights, and the tokenizer's files."""
    weights = {hf_name(part, layer): tensor for part, layer, tensor in random_weights(config)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / file, folder / file)


def write_gguf(path: Path, config: ModelConfig, kind: str) -> None:
    """One GGUF file: matrices of `kind`, vectors of fp32."""
    quantisation, file_type = KINDS[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(file_type)
    add_metadata(writer, config)
    for part, layer, tensor in random_weights(config):
        name = gguf_name(part, layer)
        if tensor.dim() == 1:
            writer.add_tensor(name, tensor.float().numpy())
            continue
        heads = {Part.Q: config.heads, Part.K: config.kv_heads}.get(part)
        rows: NDArray[np.float32] = (tensor if heads is None else interleaved(tensor, heads)).float().numpy()
        writer.add_tensor(name, gguf.quants.quantize(rows, quantisation), raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_metadata(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    """The model's shape, and SmolLM2's tokenizer field by field."""
    writer.add_name("random-llama")
    writer.add_context_length(config.max_model_len)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(ROPE_THETA)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(config.vocab_size)
    for name, field in gguf.GGUFReader(resolve("smollm2").path).fields.items():
        if name.startswith("tokenizer."):
            element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], element)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder that bench/smollm2_hf.py made")
    parser.add_argument("--layers", type=int, default=22)
    options = parser.parse_args()
    config = write_config(options.folder, options.layers)
    print(f"{config.parameters / 1e9:.2f} billion parameters")
    write_folder(options.folder, config, options.tokenizer)
    for kind in KINDS:
        path = options.folder.with_name(f"{options.folder.name}.{kind}.gguf")
        write_gguf(path, config, kind)
        print(f"{path}: {path.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
