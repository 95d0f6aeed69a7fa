"""The gallery is readable in the repository: a picture of each script, and a list that is current."""

import importlib.util

from tests.program import ROOT

SITE = ROOT / "docs" / "site" / "gallery_pictures.py"


def test_the_list_and_its_pictures_are_current():
    spec = importlib.util.spec_from_file_location("gallery_pictures", SITE)
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    scripts, advice = gallery.read_scripts(), "run docs/site/gallery_pictures.py"
    assert gallery.PAGE.read_text() == gallery.write_page(), advice
    pictures = {path.stem: path.stat().st_size for path in gallery.PICTURES.glob("*.png")}
    assert pictures.keys() == {path.stem for path in scripts}, advice
    assert max(pictures.values()) <= gallery.SIZE
    assert all(title and words for title, words in scripts.values())
    of_models = [path for path in scripts if "real_models" in path.read_text()]
    assert len(of_models) * 2 >= len(scripts), "half of them are of pretrained models"
