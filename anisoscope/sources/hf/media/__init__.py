"""Measure models of pictures or sound.

Files of a folder are windows; maps may change their size between stages.
"""
