"""One file for each family of quantities; `registry.py` lists them."""
