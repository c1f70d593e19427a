"""Estimators: a user's model function, and the modes, hooks and files around its programs."""
