"""Architectures of `keras.applications`, trained with Keras alone and in an `IPUStrategy`."""
