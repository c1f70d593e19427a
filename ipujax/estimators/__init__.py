"""The parts of estimators: model functions, modes, hooks, and the files of a training."""
