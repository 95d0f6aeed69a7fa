"""Build enwik8 for TFDS: records of 64 KiB in the order of the text, without TensorFlow."""

import zipfile
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

URL = "http://mattmahoney.net/dc/enwik8.zip"
RECORD = 65_536


class Builder(tfds.core.GeneratorBasedBuilder):
    """The data set with a single split, "text"; data/corpus.py cuts it into the three splits."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            description="The first 100,000,000 bytes of the English Wikipedia dump of 2006-03-03.",
            homepage="http://mattmahoney.net/dc/textdata.html",
            features=tfds.features.FeaturesDict(
                {"text": tfds.features.Tensor(shape=(None,), dtype=np.uint8, encoding="bytes")}
            ),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        return {"text": self._generate_examples(dl_manager.download(URL))}

    def _generate_examples(self, path) -> Iterator[tuple[int, dict]]:
        # Unzipped here: extraction by TFDS imports TensorFlow.
        with zipfile.ZipFile(path) as archive, archive.open("enwik8") as text:
            for index, record in enumerate(iter(lambda: text.read(RECORD), b"")):
                yield index, {"text": np.frombuffer(record, np.uint8)}
