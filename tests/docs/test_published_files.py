"""What is cited is what is released: one version everywhere, and files that those who index them
can read.
"""

import json
import re

import yaml

import anisoscope
from tests.program import ROOT


def test_one_version_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (
        cited["version"]
        == json.loads((ROOT / "codemeta.json").read_text())["version"]
        == anisoscope.__version__
    )
    assert f'version = "{anisoscope.__version__}"' in (ROOT / "conda" / "meta.yaml").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] in (anisoscope.__version__, "Unreleased")
    assert {paper["year"] for paper in cited["references"]} == {2024, 2026}
