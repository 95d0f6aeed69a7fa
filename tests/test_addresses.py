"""The project's addresses stand in pyproject.toml, and everywhere or nowhere; no placeholder does."""

import re
import tomllib

import pytest
import yaml

from tests.program import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PLACEHOLDER = re.compile(
    r"example\.(com|org)|your[-_](name|org|user)|<owner>|\bTODO\b|\bFIXME\b", re.I
)
PRINTED = ("README.md", "CITATION.cff", "codemeta.json", "pyproject.toml", "docs/index.md")
FIELDS = {  # address: its field in CITATION.cff
    "repository": "repository-code",
    "documentation": "url",
    "doi": "doi",
}


@pytest.mark.parametrize("name", FIELDS)
def test_an_address_stands_everywhere_or_nowhere(name):
    address = PROJECT["tool"]["anisoscope"]["addresses"][name]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text()).get(FIELDS[name], "")
    urls = {key.lower(): url for key, url in PROJECT["project"].get("urls", {}).items()}
    assert cited == address
    assert urls.get(name, "") == ("" if name == "doi" else address)
    assert not address or address in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", PRINTED)
def test_no_placeholder_is_printed(path):
    assert not PLACEHOLDER.search((ROOT / path).read_text())
