"""Texts to vectors that are near each other where the texts mean alike: MiniLM, run with numpy alone.

A model is a directory as sentence-transformers keeps it: BERT whose outputs are averaged. Only data is read
from it (`config.json`, `tokenizer.json`, `model.safetensors`), no code. This module is imported only where a
model is configured, since it needs the extra `toolgate[semantic]`.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

from toolgate.errors import StartRefused

Vectors = NDArray[np.float32]

MAX_TOKENS: Final = 64
"""Of a text: what a tool is for stands at its beginning, and longer ones take several times as long."""
MAX_TEXT_CHARS: Final = 2_000


class Embedder:
    """One model, in memory. Several threads may use it at once."""

    def __init__(self, directory: Path) -> None:
        """Raises StartRefused where `directory` holds no model of this kind."""
        # numpy would share each multiplication among all cores: where others work too, a query then takes ten
        # times as long. For the whole process, which multiplies nothing else.
        threadpool_limits(1, user_api="blas")
        try:
            config = json.loads((directory / "config.json").read_text("utf-8"))
            self._layers = int(config["num_hidden_layers"])
            self._heads = int(config["num_attention_heads"])
            self.width = int(config["hidden_size"])
            weights = directory / "model.safetensors"
            self._weights = {name: w.astype(np.float32, copy=False) for name, w in load_file(weights).items()}
            self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
            self._tokenizer.enable_truncation(MAX_TOKENS)
            self._tokenizer.no_padding()
            with weights.open("rb") as file:
                self.model_id = hashlib.file_digest(file, "sha256").hexdigest()
            self.embed(["every weight is there, and of the right shape"])
        except Exception as exc:  # what reads tokenizers raises nothing more special
            raise StartRefused(
                f"cannot load a model from `{directory}`: {exc}",
                hint="`semantic_model` is a directory with all-MiniLM-L6-v2; see docs/guides/search.md",
            ) from exc

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A vector of length 1 for each of `texts`."""
        tokens = [self._tokens(text) for text in texts]
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros(ids.shape, np.float32)
        for row, found in enumerate(tokens):
            ids[row, : len(found)] = found
            mask[row, : len(found)] = 1
        hidden = self._encode(ids, mask)
        means: Vectors = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        lengths: Vectors = np.linalg.norm(means, axis=1, keepdims=True)
        return means / lengths

    def _tokens(self, text: str) -> list[int]:
        # Halves of surrogate pairs are no text that could be encoded. One at a time: batches start threads.
        sound = text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()
        ids: list[int] = self._tokenizer.encode(sound).ids
        return ids

    def _encode(self, ids: NDArray[np.int64], mask: Vectors) -> Vectors:
        weights = self._weights
        words = weights["embeddings.word_embeddings.weight"][ids]
        places = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        kinds = weights["embeddings.token_type_embeddings.weight"][0]
        hidden = self._normal(words + places + kinds, "embeddings.LayerNorm")
        for number in range(self._layers):
            layer = f"encoder.layer.{number}."
            attended = self._linear(self._attend(hidden, mask, layer), f"{layer}attention.output.dense")
            hidden = self._normal(attended + hidden, f"{layer}attention.output.LayerNorm")
            wide = _gelu(self._linear(hidden, f"{layer}intermediate.dense"))
            hidden = self._normal(
                self._linear(wide, f"{layer}output.dense") + hidden, f"{layer}output.LayerNorm"
            )
        return hidden

    def _attend(self, hidden: Vectors, mask: Vectors, layer: str) -> Vectors:
        texts, length, width = hidden.shape  # the last is that of all heads together

        def heads(name: str) -> Vectors:
            projected = self._linear(hidden, f"{layer}attention.self.{name}")
            return projected.reshape(texts, length, self._heads, -1).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").swapaxes(-1, -2) / np.float32(math.sqrt(width / self._heads))
        scores += (mask[:, None, None, :] - 1) * np.float32(1e9)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed: Vectors = (shares @ heads("value")).transpose(0, 2, 1, 3)
        return mixed.reshape(texts, length, width)

    def _linear(self, hidden: Vectors, name: str) -> Vectors:
        product: Vectors = hidden @ self._weights[f"{name}.weight"].T
        return product + self._weights[f"{name}.bias"]

    def _normal(self, hidden: Vectors, name: str) -> Vectors:
        centred = hidden - hidden.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-12))
        scaled: Vectors = centred / spread * self._weights[f"{name}.weight"]
        return scaled + self._weights[f"{name}.bias"]


def _gelu(x: Vectors) -> Vectors:
    """GELU by its definition; the error function as in Abramowitz and Stegun, 7.1.26 (off by < 1.5e-7)."""
    one = np.float32(1)
    z: Vectors = np.abs(x) * np.float32(math.sqrt(0.5))
    t: Vectors = one / (one + np.float32(0.3275911) * z)
    series: Vectors = np.float32(1.061405429) * t - np.float32(1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(coefficient)
    error: Vectors = np.sign(x) * (one - series * t * np.exp(-z * z))
    return np.float32(0.5) * x * (one + error)
