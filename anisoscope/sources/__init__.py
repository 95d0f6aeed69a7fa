"""Where clouds come from: checkpoints of a run, pretrained models, arrays, files, functions,
untrained blocks.
"""
