"""Keras in the scope of an `IPUStrategy`; needs the extra `keras`."""
