"""What tests of several runs share: tables with other settings and seeds, and a run's folder of
each.
"""

import functools
import json

import xarray as xr

from anisoscope.plot.run_tables import Run
from anisoscope.results import joined_files
from tests.plot.tables import make_run, shapes_at

KEPT = {
    *("anisotropy", "mean_cosine", "drift", "twonn", "gride", "cka_layers", "norm_ratio"),
    *("attention_entropy", "attention_first_token", "query_key_alignment"),
}
OTHERS = tuple({*shapes_at(0, 2, True)} - KEPT)
BITS = {"test_bits": 2.0, "valid_bits": 2.5}


@functools.cache
def plain(causal: bool, steps: tuple[int, ...], layers: int, seed: int) -> Run:
    return make_run(
        causal, steps, layers, batches=2, heads=2, seed=seed, without=OTHERS, nulls=("gaussian",)
    )


def made(
    seed=0, data_seed=None, corpus="digest", steps=(0, 1, 10), layers=3, causal=True, **changes
) -> xr.Dataset:
    """A table, with settings changed by dotted name ("model__qk_norm"), data_seed as the config
    holds it.
    """
    table = plain(causal, steps, layers, seed).results.copy()
    config = json.loads(table.attrs["config"])
    config["train"] |= {"data_seed": data_seed}
    for name, value in changes.items():
        group, _, leaf = name.partition("__")
        config[group][leaf] = value
    table.attrs |= {"config": json.dumps(config), "corpus_sha256": corpus}
    return table


def sinks(seeds) -> dict[str, xr.Dataset]:
    """Two conditions that differ in the sink alone."""
    return {
        f"{kind}_{seed}": made(seed, model__sink=kind == "sink")
        for kind in ("plain", "sink")
        for seed in seeds
    }


def folders(tables, to):
    for number, (name, table) in enumerate(tables.items()):
        joined_files.write_table(table, to / name / "results.nc")
        lines = zip((0, 5, 6), ("valid", "valid", "train"), (7, 3, 1), strict=True)
        lines = [
            dict(zip(("step", "kind", "bits_per_character"), line, strict=True)) for line in lines
        ]
        (to / name / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (to / name / "test.json").write_text(
            json.dumps({"bits_per_character": 2.0 + number, "step": 6})
        )
    return {name: to / name for name in tables}
