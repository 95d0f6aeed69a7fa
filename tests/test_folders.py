"""Models of ours as Hugging Face folders and back, without torch; tests/pretrained has it with
transformers.
"""

import json

import jax
import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.transformer import build
from anisoscope.sources.hf import folders
from anisoscope.utils.errors import UserError

LETTERS = bytes(range(97, 109))
SMALL = {"layers": 2, "width": 12, "heads": 3, "context": 8, "expansion": 2}
MODELS = [
    {"position_encoding": "learned"},
    {"position_encoding": "rotary", "tied": False, "activation": "gelu_tanh"},
    {"bias": False},
]


def made(**changes):
    """Random parameters of their shapes."""
    model, generator = ModelConfig(**SMALL | changes), np.random.default_rng(0)
    shapes = jax.eval_shape(build(model, len(LETTERS) + 1, "float32").init, jax.random.key(0))
    return model, jax.tree.map(
        lambda leaf: generator.normal(size=leaf.shape).astype(np.float32), shapes
    )


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_a_model_comes_back(tmp_path, changes):
    model, params = made(**changes)
    folders.write_folder(tmp_path / "out", model, params, LETTERS, {"step": 3})
    again, back, settings = folders.read_folder(tmp_path / "out")
    assert again == ModelConfig(**SMALL | changes | {"bias": True})
    assert settings["anisoscope"] == {"step": 3}
    if not model.bias:  # there are zeros in their place
        _, full = made(**changes | {"bias": True})
        zeros = jax.tree.map(np.zeros_like, full)
        params = jax.tree.map(np.asarray, merged(zeros, params))
    jax.tree.map(np.testing.assert_array_equal, back, params)


def merged(below, above):
    both = {
        name: merged(below[name], value) if isinstance(value, dict) else value
        for name, value in above.items()
    }
    return below | both


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mask": "bidirectional"}, "model.mask=bidirectional"),
        ({"norm": "post", "sink": True}, "norm=post, model.sink"),
        ({"same_first": True}, "same_first=True"),
    ],
)
def test_what_no_class_has_is_refused(changes, words):
    with pytest.raises(UserError, match=words):
        folders.find_class(ModelConfig(**SMALL | changes))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use_parallel_residual": True}, "use_parallel_residual=True"),
        (
            {"rope_parameters": {"rope_theta": 5e5, "rope_type": "yarn"}},
            "rotary_emb_base=500000.0, rope_type=yarn",
        ),
        ({"hidden_act": "relu"}, "hidden_act=relu"),
        ({"intermediate_size": 25}, "intermediate_size=25"),
        ({"model_type": "llama"}, "model_type is 'llama'"),
    ],
    ids=str,
)
def test_a_block_that_is_not_ours_is_refused(tmp_path, settings, words):
    model, params = made(position_encoding="rotary")
    folders.write_folder(tmp_path, model, params, LETTERS, {})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with pytest.raises(UserError, match=words):
        folders.read_folder(tmp_path)
