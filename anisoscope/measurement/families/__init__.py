"""One file for each family of quantities; `entries` lists them."""
