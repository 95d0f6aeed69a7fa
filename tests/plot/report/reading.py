"""What tests read off a page without a browser: its elements, its words, its numbers."""

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np


class Page(HTMLParser):
    """`elements` has the tag, the attributes and the text of each; `text` is all that a reader sees."""

    def __init__(self, content: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = [("", {}, "")]
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), ""))

    def handle_data(self, data):
        tag, attributes, text = self.elements[-1]
        self.elements[-1] = tag, attributes, text + data
        self.text += "" if tag in ("script", "style") else data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes, _ in self.elements if found == tag]

    def named(self, name: str) -> str:
        return next(text for _, attributes, text in self.elements if attributes.get("id") == name)

    @property
    def known(self) -> dict[str, Any]:
        return json.loads(self.named("known"))

    def unpacked(self, name: str) -> bytes:
        return gzip.decompress(base64.b64decode(self.named(name)))

    def values(self, run: int, name: str, null: str | None = None) -> np.ndarray:
        """A variable of the run with this number, or its excess over a null model, in the shape of its table."""
        about = self.known["runs"][run]
        variable = about["variables"][name]
        shape, offset = [len(about["labels"][dim]) for dim in variable["dims"]], variable["offset"]
        if null is not None:
            offset = variable["excess"] + 4 * int(np.prod(shape)) * variable["nulls"].index(null)
        flat = np.frombuffer(self.unpacked(f"numbers-{run}"), "<f4", int(np.prod(shape)), offset)
        return flat.reshape(shape)
