"""The demo: a classifier over two virtual IPUs learns handwritten digits (`make demo`)."""
