"""Recurrent layers as one scan over time each, with custom derivatives."""
