"""Corpora: where the text comes from, how it is cleaned, and how windows are cut from it."""
