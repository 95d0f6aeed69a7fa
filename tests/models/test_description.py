import dataclasses

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.description import describe_model, described_fields
from anisoscope.models.masks import seeds
from tests.models.cases import SMALL


def test_what_gpt2_has_goes_without_saying():
    assert (
        describe_model(ModelConfig(layers=1, width=8, heads=2, context=4))
        == "causal, pre-LN, 1 layer, D=8, H=2, T=4"
    )


def test_what_is_told_is_every_setting_but_seeds_and_how_it_is_computed():
    fields = {field.name for field in dataclasses.fields(SMALL)}
    assert fields - set(described_fields()) == {*seeds(), "remat", "dtype"}
    assert set(described_fields()) <= fields
