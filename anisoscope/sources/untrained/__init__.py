"""Simulate untrained blocks under a common bias, and compare them with theory."""
