"""Geometry of transformer representations: trained here, pretrained, or anybody's arrays."""

__version__ = "0.2.0"
