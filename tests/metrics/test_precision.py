"""On an accelerator a product without full precision rounds its factors to TF32 or bfloat16; a CPU
cannot show that.
"""

import jax
import jax.numpy as jnp
import pytest

from anisoscope.metrics import similarity
from anisoscope.metrics.attention import attention_statistics, attention_sums
from anisoscope.metrics.comparison import ckas, layers_cka, prepare_clouds
from anisoscope.metrics.frequency import mean_by_bin, type_statistics
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.outliers import activation_kurtosis, top_coordinate_variance_share
from anisoscope.metrics.spectrum import spectrum
from tests.metrics.clouds import FEW, MANY

TALL, WIDE = jnp.ones((12, 4)), jnp.ones((4, 12))
TYPES = jnp.arange(12) % 3
OF_ONE = (similarity.mean_cosine, similarity.mean_cosine_parts, similarity.mean_vector)
WITH_PRODUCTS = {
    "neighbors by pairs of blocks": lambda: nearest_neighbors(TALL, FEW),
    "neighbors by columns": lambda: nearest_neighbors(TALL, MANY),
    "spectrum": lambda: spectrum(TALL),
    "spectrum in folds": lambda: spectrum(TALL, 3),
    "spectrum of few points": lambda: spectrum(WIDE, 2),
    "outliers": lambda: (top_coordinate_variance_share(TALL), activation_kurtosis(TALL)),
    "frequency": lambda: (
        type_statistics(TALL, TYPES, TALL[:, 0], 2, 4),
        mean_by_bin(TALL[:, 0], TYPES, 3),
    ),
    "cka": lambda: (ckas(TALL, TALL, 3), layers_cka(prepare_clouds(jnp.stack([TALL, TALL])))),
    "cosines": lambda: (similarity.cross_cosine(TALL, TALL), *(read(TALL) for read in OF_ONE)),
    "partition": lambda: similarity.log_partition_isotropy(TALL, 3),
    "attention": lambda: attention_statistics(
        attention_sums(TALL[None], TALL[None], jnp.ones((12, 12), bool))
    ),
}


@pytest.mark.parametrize("name", WITH_PRODUCTS)
def test_every_product_has_full_float32_precision(name):
    text = str(jax.make_jaxpr(WITH_PRODUCTS[name])())
    products = text.count("dot_general[")
    assert products > 0
    assert (
        text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
        + text.count("precision=HIGHEST")
        == products
    )
