"""A tiny model of the llama architecture.

Its layer adds nothing to a token's vector, so what it says next depends on the last token alone:
after the ":" that ends the prompt comes the first word of `SAID`, after each word the next one,
and after the last one the end. A real server loads it and samples from it like from any other.
"""

from itertools import pairwise
from pathlib import Path
from typing import Final

import gguf
import numpy as np

SAID: Final = (
    "<current_focus>\n", "The", " notes", " of", " a", " model", " that", " has", " one", " layer",
    ".", "\n</current_focus>",
)  # fmt: skip
"""The tokens of its answer."""

SUMMARY: Final = "".join(SAID)
OUTPUT_TOKENS: Final = len(SAID) + 1
"""The length of the answer for its server, which counts the end token."""

CONTEXT_TOKENS: Final = 32_768
"""A prompt has one token a byte, since no word of it is in the vocabulary."""

_UNKNOWN, _BEGIN, _END = range(3)
_BYTES: Final = 3
_WORDS: Final = _BYTES + 256
_PROMPT_ENDS: Final = _BYTES + ord(":")
_TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "assistant:"
)
_WIDTH: Final = 288
_HEADS: Final = 4
_HEAD_WIDTH: Final = _WIDTH // _HEADS
_INNER_WIDTH: Final = 32
_CERTAINTY: Final = 8.0
"""Far above all other tokens at any temperature."""


def write_tiny_model(path: Path) -> None:
    """Write the model as a GGUF file."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _add_shape(writer)
    _add_vocabulary(writer)
    _add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_INNER_WIDTH)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_HEAD_WIDTH)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    kinds = gguf.TokenType
    control = [(b"<unk>", kinds.UNKNOWN), (b"<s>", kinds.CONTROL), (b"</s>", kinds.CONTROL)]
    single = [(f"<0x{byte:02X}>".encode(), kinds.BYTE) for byte in range(256)]
    words = [(word.replace(" ", "\u2581").encode(), kinds.NORMAL) for word in SAID]
    vocabulary = [*control, *single, *words]
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in vocabulary])
    writer.add_token_scores([0.0] * len(vocabulary))
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_unk_token_id(_UNKNOWN)
    writer.add_bos_token_id(_BEGIN)
    writer.add_eos_token_id(_END)
    writer.add_chat_template(_TEMPLATE)


def _add_tensors(writer: gguf.GGUFWriter) -> None:
    size = _WORDS + len(SAID)
    chain = [_PROMPT_ENDS, *range(_WORDS, size), _END]
    follows = np.zeros((size, _WIDTH), np.float32)
    for last, following in pairwise(chain):
        follows[following, last] = _CERTAINTY
    key_width = _HEAD_WIDTH
    for name, tensor in {
        "token_embd": np.eye(size, _WIDTH, dtype=np.float32),
        "output_norm": np.ones(_WIDTH, np.float32),
        "output": follows,
        "blk.0.attn_norm": np.ones(_WIDTH, np.float32),
        "blk.0.ffn_norm": np.ones(_WIDTH, np.float32),
        "blk.0.attn_q": np.zeros((_WIDTH, _WIDTH), np.float32),
        "blk.0.attn_k": np.zeros((key_width, _WIDTH), np.float32),
        "blk.0.attn_v": np.zeros((key_width, _WIDTH), np.float32),
        "blk.0.attn_output": np.zeros((_WIDTH, _WIDTH), np.float32),
        "blk.0.ffn_gate": np.zeros((_INNER_WIDTH, _WIDTH), np.float32),
        "blk.0.ffn_up": np.zeros((_INNER_WIDTH, _WIDTH), np.float32),
        "blk.0.ffn_down": np.zeros((_WIDTH, _INNER_WIDTH), np.float32),
    }.items():
        writer.add_tensor(f"{name}.weight", tensor)
