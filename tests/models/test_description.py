import dataclasses

from anisoscope.config.model import ModelConfig
from anisoscope.models.description import described_fields, description
from anisoscope.models.masks import seeds
from tests.models.cases import SMALL, case


def test_what_gpt2_has_goes_without_saying():
    assert description(ModelConfig(layers=1, width=8, heads=2, context=4)) == "causal, pre-LN, 1 layer, D=8, H=2, T=4"


def test_all_else_is_said():
    model = case("leak", "sigmoid", "rotary", "post", "odd", "qk_norm", "centre_queries", "sink", "untied", "no_bias")
    model = dataclasses.replace(model, same_first=True)
    assert description(model) == (
        "leak 0.2, post-LN, 3 layers, D=21, H=3, T=12, F=3D, rotary, untied, no biases, sigmoid, query-key norm, "
        "queries centred, sink, first token always [MASK]"
    )


def test_what_is_told_is_every_setting_but_seeds_and_how_it_is_computed():
    fields = {field.name for field in dataclasses.fields(SMALL)}
    assert fields - set(described_fields()) == {*seeds(), "remat", "dtype"}
    assert set(described_fields()) <= fields
