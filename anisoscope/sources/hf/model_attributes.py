"""What the tables of a pretrained model say about where their numbers come from."""

import dataclasses
import json
import pathlib
import sys
from typing import Any

from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.data.corpus import Corpus
from anisoscope.sources.hf.reading.token_windows import Windows

GUARDED = (  # of each revision, in the table of all
    *(
        "revision",
        "weights_sha256",
        "weights_file",
        "weights_type",
        "computed_in",
        "not_read",
        "residual_stream",
    ),
    *("attention", "bits_per_byte", "bits_bound", "bits_of", "noise_floor", "clamped"),
    *("readout", "torch", "transformers"),
)
OF_STREAM = (  # what a run says of the residual stream, and not of a hook point
    *(
        "residual_stream",
        "attention",
        "readout",
        "bits_per_byte",
        "bits_bound",
        "bits_of",
        "noise_floor",
        "revisions",
    ),
)
STATES = {"blocks": "outputs of blocks", "reported": "hidden states as transformers reports them"}


def attributes(
    config: PretrainedConfig, corpus: Corpus, windows: Windows, name: str
) -> dict[str, Any]:
    """What every table says about where its numbers come from."""
    return {
        "run": name,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "pretrained": config.pretrained.name,
        "points": config.measure.points,
        "batches": config.measure.batches,
        "folds": config.measure.folds,
        "config": json.dumps(dataclasses.asdict(config)),
        **windows.about,
    }


def plain(value: Any) -> Any:
    """A number read from a table is NumPy's."""
    return value.item() if hasattr(value, "item") else value


def peak() -> int:
    """Bytes of memory that this process has needed; macOS counts them, Linux kilobytes."""
    import resource  # of systems that have it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def in_words(config: PretrainedConfig, about: dict[str, Any]) -> str:
    """Where numbers come from, as a figure says it, with semicolons between facts."""
    bits = about["bits_per_byte"]
    return "; ".join(
        (
            about["corpus"],
            "/".join(pathlib.Path(config.pretrained.name).parts[-2:]),
            *about["model"].split(", "),
            STATES[config.hidden_states],
            f"computed in {about['computed_in']}",
            *(
                [f"coordinates clamped at {config.pretrained.clamp:g}"]
                if config.pretrained.clamp
                else []
            ),
            *([f"{bits:.2f} bits a byte"] if not isinstance(bits, str) else []),
            f"weights {about['weights_sha256'][:12]}",
        )
    )
