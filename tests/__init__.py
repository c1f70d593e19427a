"""Tests of ipujax and lowering; the folders mirror the source."""
