"""The site of the documents: `make docs`. Warnings are errors; no page asks anything of another
host.
"""

import logging
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

import anisoscope

logging.getLogger("anisoscope").setLevel(logging.ERROR)  # the gallery compiles

project = "Anisoscope"
author = "The Anisoscope developers"
copyright = author
version = release = anisoscope.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "outside",
]
exclude_patterns = ["site", "gallery", "requirements.txt"]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
nitpicky = False
smartquotes_action = "qe"  # two dashes begin a flag

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # of arrays they are unions as long as a line; docstrings say the shapes
autodoc_class_signature = "mixed"
napoleon_use_rtype = False
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"Anisoscope {version}"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["fold.js"]
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # a page read from a disk may not fetch others

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "gallery"),
    "gallery_dirs": "made/gallery",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", "looks.reset"),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "show_signature": False,
    "show_memory": False,
    "ignore_repr_types": "matplotlib|'list'",  # that a last line happens to give
    "remove_config_comments": True,
    "plot_gallery": True,
    "write_computation_times": False,
}
