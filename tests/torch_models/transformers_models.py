"""Models of Hugging Face's transformers: the real classes, with few and small layers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from tests.torch_models.example import Build, Example, images
from tests.torch_models.libraries import transformers

VOCABULARY, LENGTH, BATCH, LABELS = 99, 12, 2, 3

_ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "num_labels": LABELS,
}
_LLAMA = {**_ENCODER, "num_key_value_heads": 2}
_IMAGES = {"image_size": 32, "patch_size": 8, "num_labels": LABELS}
_CLIP = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "projection_dim": 16,
}  # fmt: skip
_SEQUENCES = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}  # fmt: skip

_TOKENS = {
    "BertForMaskedLM": _ENCODER,
    "BertForSequenceClassification": _ENCODER,
    "BertForPreTraining": _ENCODER,
    "RobertaForMaskedLM": {**_ENCODER, "pad_token_id": 1},
    "DistilBertForMaskedLM": {
        "vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
        "max_position_embeddings": 40,
    },
    "AlbertForMaskedLM": {**_ENCODER, "embedding_size": 16},
    "DebertaForMaskedLM": {
        **_ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
        "position_biased_input": False,
    },
    "DebertaV2ForMaskedLM": {
        **_ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm",
    },
    "ElectraForMaskedLM": {**_ENCODER, "embedding_size": 16},
    "GPT2LMHeadModel": {
        "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40,
    },
    "GPTNeoForCausalLM": {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
        "attention_types": [[["global", "local"], 1]], "window_size": 4, "intermediate_size": 64,
        "max_position_embeddings": 40,
    },
    "OPTForCausalLM": {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64,
        "num_attention_heads": 4, "max_position_embeddings": 40, "word_embed_proj_dim": 32,
    },
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": {**_LLAMA, "sliding_window": 4},
    "T5ForConditionalGeneration": {
        "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
        "num_heads": 4, "decoder_start_token_id": 0,
    },
    "BartForConditionalGeneration": {**_SEQUENCES, "max_position_embeddings": 40},
}  # fmt: skip
_PIXELS = {
    "ViTForImageClassification": {**_ENCODER, **_IMAGES},
    "SwinForImageClassification": {
        **_IMAGES, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4,
    },
}  # fmt: skip
_OTHERS = {
    "CLIPModel": {
        "text_config": {**_CLIP, "vocab_size": VOCABULARY, "max_position_embeddings": 40},
        "vision_config": {**_CLIP, "image_size": 32, "patch_size": 8},
        "projection_dim": 16,
    },
    "WhisperForConditionalGeneration": {
        **_SEQUENCES, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 40,
        "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    },
    "Wav2Vec2ForCTC": {
        **_ENCODER, "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2],
        "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4, "vocab_size": 20, "apply_spec_augment": False,
    },
    "Wav2Vec2ForSequenceClassification": {
        **_ENCODER, "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2],
        "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False,
    },
}  # fmt: skip


def examples() -> dict[str, Build]:
    """All by their names."""
    configurations: dict[str, Mapping[str, Any]] = {**_TOKENS, **_PIXELS, **_OTHERS}
    return {
        name: functools.partial(_example, name, options) for name, options in configurations.items()
    }


def _example(name: str, options: Mapping[str, Any]) -> Example:
    model_class = getattr(transformers(), name)
    config = model_class.config_class(**options)
    parts = [getattr(config, part) for part in ("text_config", "vision_config") if part in options]
    for each in (config, *parts):
        _without_dropout(each)
    # PyTorch cannot export the loss of a transcription, whose shapes depend on values.
    return Example(model_class(config), _inputs(name), train=name != "Wav2Vec2ForCTC")


def _without_dropout(config: Any) -> None:
    """Dropout that models read from their configuration is none of `nn.Dropout`."""
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    if hasattr(config, "use_cache"):
        config.use_cache = False


def _inputs(name: str) -> dict[str, Any]:
    if name in _PIXELS:
        return {"pixel_values": images(32, BATCH), "labels": torch.randint(LABELS, (BATCH,))}
    tokens = torch.randint(3, VOCABULARY, (BATCH, LENGTH))
    if name == "CLIPModel":
        tokens[:, -1] = VOCABULARY - 1
        return {"input_ids": tokens, "pixel_values": images(32, BATCH), "return_loss": True}
    if name.startswith("Whisper"):
        return {"input_features": torch.randn(BATCH, 8, 40), "labels": tokens}
    if name.startswith("Wav2Vec2"):
        labels = {} if "CTC" in name else {"labels": torch.tensor([0, 2])}
        return {"input_values": torch.randn(BATCH, 400), **labels}
    mask = torch.ones_like(tokens)
    mask[1, -3:] = 0
    inputs = {"input_ids": tokens, "attention_mask": mask, "labels": tokens}
    if name == "BertForSequenceClassification":
        return inputs | {"labels": torch.tensor([0, 2])}
    if name == "BertForPreTraining":
        return inputs | {"next_sentence_label": torch.tensor([0, 1])}
    return inputs
