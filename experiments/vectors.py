"""Your own activations from a file: --config.vectors.path=FILE.

The file is .npy, .npz, .safetensors or NetCDF. The array `vectors` is (points, width) or
(layers, points, width); `groups` labels the window or sentence of each point.
"""

from anisoscope.config.vectors_config import VectorsConfig


def get_config() -> VectorsConfig:
    return VectorsConfig()
