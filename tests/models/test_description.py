import dataclasses

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import masks
from anisoscope.models.model_settings import describe_model, described_fields

MODEL = ModelConfig(layers=1, width=8, heads=2, context=4)
CHANGED = {
    **{"mask": "bidirectional", "prefix": 2, "window": 2, "leak": 0.5, "norm": "post"},
    **{"layers": 2, "width": 16, "heads": 4, "context": 5, "expansion": 2, "tied": False},
    **{"position_encoding": "rotary", "activation": "gelu_tanh", "attention": "sigmoid"},
    **dict.fromkeys(("qk_norm", "center_queries", "sink", "same_first"), True),
    "bias": False,
}


def test_what_is_told_is_every_setting_but_seeds_and_how_it_is_computed():
    assert set(described_fields()) == CHANGED.keys()
    for name, value in CHANGED.items():
        mask = {"mask": name} if name in masks.settings() else {}
        changed = dataclasses.replace(MODEL, **mask | {name: value})
        assert describe_model(changed) != describe_model(dataclasses.replace(MODEL, **mask)), name
