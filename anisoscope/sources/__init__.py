"""Sources of clouds: runs, pretrained models, arrays, files, functions, untrained blocks."""
