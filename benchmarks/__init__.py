"""Ratios against named baselines, measured in one run; `python -m benchmarks` prints them."""
