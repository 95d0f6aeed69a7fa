"""Pictures as windows: one each, as the model's own image processor resizes and scales them."""

import hashlib
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from anisoscope.sources.hf.media.media_files import Material, listed
from anisoscope.utils.errors import UserError

PROCESSOR = "AutoImageProcessor"


def material(path: pathlib.Path, processor: Any, base: Any, positions: int, seed: int) -> Material:
    """The pictures in a folder, in random order."""
    endings = {
        ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN
    }
    files = listed(path, endings, "picture", seed)
    mode = {1: "L"}.get(getattr(base.config, "num_channels", 3), "RGB")
    digest = hashlib.sha256()

    def prepared(numbers: Sequence[int]) -> np.ndarray:
        read = []
        for number in numbers:
            file = files[number]
            content = file.read_bytes()
            digest.update(str(file.relative_to(path)).encode() + content)
            read.append(_picture(file, mode))
        try:
            inputs = [
                processor(images=[one], return_tensors="np")["pixel_values"][0] for one in read
            ]
        except Exception as error:  # the library's, of whatever kind
            raise UserError(
                f"data.path {path}: the model's processor fails ({str(error).splitlines()[0]})"
            ) from error
        sizes = {one.shape for one in inputs}
        if len(sizes) > 1:
            raise UserError(
                f"data.path {path}: the model's processor leaves pictures of {len(sizes)} sizes, as {min(sizes)} and "
                f"{max(sizes)} (colours, height, width); take pictures of one size"
            )
        return np.stack(inputs).astype(np.float32)

    def shuffled(
        numbers: Sequence[int], inputs_WCHW: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """The pixels of all of them in random order, each with its colours."""
        pixels_CN = np.moveaxis(inputs_WCHW, 1, 0).reshape(inputs_WCHW.shape[1], -1)
        mixed_CN = pixels_CN[:, rng.permutation(pixels_CN.shape[1])]
        return np.moveaxis(mixed_CN.reshape(np.moveaxis(inputs_WCHW, 1, 0).shape), 0, 1)

    return Material(
        name=f"pictures of {path.resolve().name}",
        what="pictures",
        count=len(files),
        prepared=prepared,
        shuffled=shuffled,
        called=lambda number: files[number].name,
        sha256=digest.hexdigest,
        about={
            "preparation": f"{type(processor).__name__} of the model",
            "shuffled": "pixels of all pictures of a batch in random order, each with its colours",
        },
    )


def _picture(file: pathlib.Path, mode: str) -> Image.Image:
    try:
        # of palettes, and of large ones
        with warnings.catch_warnings(action="ignore"), Image.open(file) as picture:
            if picture.mode[0] not in "IF":
                return picture.convert(mode)
            own_mode = picture.mode
    except Exception as error:  # Pillow's, or those of its formats
        first = (str(error).splitlines() or [type(error).__name__])[0].split(" '")[0]
        raise UserError(
            f"data.path: {file} is no picture that can be read ({first}); move it away"
        ) from error
    raise UserError(
        f"data.path: {file} has pixels of mode {own_mode}, more than 8 bits a colour; save it with 8 bits"
    )
