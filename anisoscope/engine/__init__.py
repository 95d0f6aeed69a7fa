"""Measure clouds of any number of points with few compiled programs."""
