"""Compare two untrained networks on the same text by CKA, calibrated by permutations.

It writes findings/tables/families/calibrated.csv.

    .venv/bin/python -m findings.scripts.calibrated

Layer l of one beside layer l of the other: the decoder of the demo, two seeds, windows of `pydoc`.
Windows change places as wholes ("windows"), or each point by itself ("alone"), which takes a common
text for likeness.
"""

import pathlib

import jax
import numpy as np
import pandas as pd

from anisoscope.data import corpus
from anisoscope.experiments import quickstart
from anisoscope.metrics.calibration import calibrated_cka
from anisoscope.models import transformer
from anisoscope.results import joined_files

TABLE = pathlib.Path("findings/tables/families/calibrated.csv")
WINDOWS = 32


def clouds_of(seed: int) -> np.ndarray:
    """(layers, points, width), window after window."""
    config = quickstart.get_config()
    text = corpus.load_corpus(config.data, config.model.context)
    network = transformer.build(config.model, text.vocab_size, "float32")
    tokens_WT = text.valid[: WINDOWS * config.model.context].reshape(WINDOWS, -1)
    resid_LWTD = jax.jit(network.apply)(network.init(jax.random.key(seed)), tokens_WT)[1].resid_LBTD
    return np.asarray(resid_LWTD).reshape(len(resid_LWTD), -1, config.model.width)


def main() -> None:
    clouds, rows = [clouds_of(seed) for seed in (0, 1)], []
    read = jax.jit(calibrated_cka, static_argnums=3)
    for layer, pair in enumerate(zip(*clouds, strict=True)):
        for how, together in (("windows", len(pair[0]) // WINDOWS), ("alone", 1)):
            found = read(*pair, jax.random.key(0), together)
            for quantity, value in (("cka", found.biased), ("cka_unbiased", found.unbiased)):
                numbers = {name: float(number) for name, number in value._asdict().items()}
                rows.append({"layer": layer, "permuted": how, "quantity": quantity} | numbers)
    frame = pd.DataFrame(rows).round(4)
    joined_files.write_csv(frame, TABLE)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
