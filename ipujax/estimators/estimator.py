"""What both kinds of estimators are: training, evaluation and prediction by device loops."""

from __future__ import annotations

import abc
import itertools
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.checks.lines import api_boundary
from ipujax.estimators.beginning import Beginning
from ipujax.estimators.checks import check, check_steps
from ipujax.estimators.data import DataSet, elements_of
from ipujax.estimators.event_files import EventFile
from ipujax.estimators.export import receivers_of, write, zeros
from ipujax.estimators.folder import ModelFolder
from ipujax.estimators.hooks import HookCallback, SessionRunHook
from ipujax.estimators.journal import Journal, write_scores
from ipujax.estimators.listeners import (
    CheckpointSaverListener,
    check_saves,
    checked_listeners,
)
from ipujax.estimators.mode import Mode, Settings
from ipujax.estimators.predictions import examples, features_of, of_keys
from ipujax.estimators.saver import Saver
from ipujax.estimators.scores import Scores, unstacked
from ipujax.estimators.spec import MODES, ModeKeys, checked_hooks
from ipujax.estimators.workers import Agreement
from ipujax.host.files import StrPath
from ipujax.ipu_run_config import RunConfig
from ipujax.training import TrainState
from ipujax.training.state import Tree

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from ipujax.targets import Target

# What users call modes by the methods that run them.
_MODE_WORDS = {"evaluate": ModeKeys.EVAL, "predict": ModeKeys.PREDICT}


class Estimator(abc.ABC):
    """A model, trained and used by device loops, whose state is in the files of a folder.

    Args:
      model_fn: the user's.
      model_dir: where checkpoints are; that of `config`, or a temporary folder, by default.
      config: a `RunConfig` with an `ipu_run_config`.
      params: given to the user's functions.
      warm_start_from: a checkpoint whose variables to begin with, where there is none of its own.
      batch_sizes: of each mode, for all replicas and workers; those of one of them are in `params`.
      init_fn: `init_fn(key, features)` gives `variables`, or `(variables, state)`; None for a
        model without variables.
    """

    def __init__(
        self,
        model_fn: Any,
        model_dir: Any,
        config: Any,
        params: Any,
        warm_start_from: Any,
        init_fn: Callable[..., Tree] | None,
        batch_sizes: Mapping[str, int | None] = types.MappingProxyType({}),
    ):
        if not isinstance(config, RunConfig):
            raise check.refuse(
                f"config is {config!r}, which says nothing of IPUs",
                "give config=ipu_run_config.RunConfig(ipu_run_config=IPURunConfig(...))",
            )
        if params is not None and not isinstance(params, dict):
            raise check.refuse(f"params is {params!r}, but must be a dict", "give a dict")
        self._model_fn = model_fn
        check.function(init_fn, "init_fn", optional=True)
        if warm_start_from is not None:
            check.path(warm_start_from, "warm_start_from")
        self._settings = Settings(config, dict(params or {}), batch_sizes)
        workers = self._settings.workers_of(ModeKeys.TRAIN)
        self._folder = ModelFolder(model_dir, config, workers)
        seed = self._settings.seed
        self._beginning = Beginning(self._folder, init_fn, warm_start_from, seed, workers)
        self._modes: dict[str, Mode] = {}

    # --- the original's interface ---------------------------------------------------------------

    @property
    def config(self) -> RunConfig:
        """What the estimator was given."""
        return self._settings.config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of what the user's functions are given."""
        return dict(self._settings.params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The user's function."""
        return self._model_fn

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""
        return self._folder.path

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of an evaluation's event files."""
        return self._folder.eval_dir(name)

    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint; None if there is none."""
        return self._folder.latest()

    def get_variable_names(self) -> list[str]:
        """Names of the variables, of untrained state as `state/...`, and `global_step`, sorted.

        Raises:
          EstimatorError: (a `ValueError`) there is no checkpoint yet.
        """
        return sorted(self._folder.named())

    def get_variable_value(self, name: str | Sequence[str]) -> Any:
        """A value of the newest checkpoint, a NumPy array.

        Raises:
          EstimatorError: (a `ValueError`) there is no checkpoint yet, or no such name in it.
        """
        if isinstance(name, (list, tuple)):
            return [self.get_variable_value(each) for each in name]
        named = self._folder.named()
        return named[check.one_of(name, named, "the name of a variable")]

    @api_boundary
    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> Any:
        """Trains from the newest checkpoint on; see the class."""
        own, listeners = checked_hooks(hooks, "hooks"), checked_listeners(saving_listeners)
        check_saves(listeners, self.config)
        if steps is not None and max_steps is not None:
            raise check.refuse("both steps and max_steps are given", "give one of them")
        check_steps(steps, self.config.ipu_run_config.iterations_per_loop)
        if max_steps is not None:
            check.integer(max_steps, "max_steps", at_least=1)
        self._configure()
        with self._folder.in_training() as unfinished:
            path = self._folder.agreed()
            left = steps if max_steps is None else self._left(max_steps, path)
            if left == 0:
                return self
            position = self._folder.position_in(path) if unfinished and path else None
            data = DataSet(self._elements(input_fn, ModeKeys.TRAIN), position)
            mode, state = self._prepared(ModeKeys.TRAIN, path, data)
            with (
                self._events(self.model_dir) as events,
                Journal(mode, self.config, events, data.first()) as journal,
            ):
                told = HookCallback(lambda: [*own, *mode.hooks], events)
                saver = Saver.of(self.config, self._folder, mode, data, listeners, events)
                callbacks = [mode, journal, told, Agreement(mode.workers), saver]
                state = mode.loop.fit(state, data, self._loop_steps(mode, left), callbacks)
            self._beginning.remember(self._folder.agreed(), mode.users(state))
        return self

    @api_boundary
    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Metrics over so many steps, or until the data ends; see the class."""
        own = checked_hooks(hooks, "hooks")
        check_steps(steps, self.config.ipu_run_config.iterations_per_loop)
        self._configure()
        data = DataSet(self._elements(input_fn, ModeKeys.EVAL))
        mode, state = self._prepared(ModeKeys.EVAL, self._path(checkpoint_path), data)
        step, scores = state.step, Scores()
        with self._events(self.eval_dir(name)) as events:
            told = HookCallback(lambda: [*own, *mode.hooks], events)
            for results in mode.loop.predict(state, data, self._loop_steps(mode, steps), [told]):
                mode.score(results, told.replicas, scores)
            scores.add_up(mode.workers)
            values = scores.values() | {"global_step": np.int64(step)}
            write_scores(events, values, step)
        return values

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Yields predictions until the data ends, or there are so many; see the class."""
        own = checked_hooks(hooks, "hooks")
        keys = None if predict_keys is None else check.sequence(predict_keys, "predict_keys")
        single = check.flag(yield_single_examples, "yield_single_examples")
        if num_predictions is not None:
            check.integer(num_predictions, "num_predictions", at_least=0)
        every = self._predictions(input_fn, own, checkpoint_path, keys, single)
        return itertools.islice(every, num_predictions)

    def export_saved_model(
        self,
        export_dir_base: StrPath,
        serving_input_receiver_fn: Callable[[], Tree] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> str:
        """Saves the trained model as an executable of features alone.

        Args:
          export_dir_base: a folder; a new one in it, named by the time, gets the file.
          serving_input_receiver_fn: gives the features' shapes and dtypes, a pytree of
            `jax.ShapeDtypeStruct`; of TRAIN and EVAL a tuple of those and the labels'.
          assets_extra: paths below `assets.extra` to files that are copied there.
          as_text: write the Program's text beside.
          checkpoint_path: None for the newest.
          experimental_mode: the mode to export.

        Returns:
          The new folder; `ipu.load_executable` reads it.

        Raises:
          EstimatorError: (a `ValueError`) there is no checkpoint.
        """
        receivers = {experimental_mode: serving_input_receiver_fn}
        return self.experimental_export_all_saved_models(
            export_dir_base, receivers, assets_extra, as_text, checkpoint_path
        )

    def export_savedmodel(
        self,
        export_dir_base: StrPath,
        serving_input_receiver_fn: Callable[[], Tree] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> str:
        """The older name of `export_saved_model`; `strip_default_attrs` has nothing to strip."""
        del strip_default_attrs
        warnings.warn("use export_saved_model", DeprecationWarning, stacklevel=3)
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: StrPath,
        input_receiver_fn_map: Mapping[str, Callable[[], Tree] | None],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> str:
        """As `export_saved_model`, of several modes.

        The folder has the program of PREDICT if it is among them, else of EVAL or TRAIN; of the
        others each has a folder in it, named as the mode.
        """
        structs = receivers_of(input_receiver_fn_map, "input_receiver_fn_map")
        for mode in structs:
            check.one_of(mode, MODES, "a mode to export")
        path = self._path(checkpoint_path)
        if path is None:
            raise check.refuse(f"{self.model_dir} has no checkpoint to export", "train first")
        self._configure()
        programs: dict[str, tuple[Mode, TrainState, Tree]] = {}
        for key in sorted(structs, key=MODES.index, reverse=True):
            state = self._beginning.state(path, zeros(structs[key]))
            programs[key] = self._mode(key), state, structs[key]
        return write(export_dir_base, programs, assets_extra, as_text)

    @api_boundary
    def report(
        self,
        mode: str | None = None,
        input_fn: Callable[..., Any] | None = None,
        target: str | Target | None = None,
    ) -> Report:
        """What a mode's device loop would cost on a chip.

        Args:
          mode: whose program, as one of `ModeKeys`, or "evaluate" or "predict"; None for that of
            training or, if only others ran, of the one that was made last.
          input_fn: None for the program that ran last; otherwise the program for the first
            element of this data set is modelled, without compiling or running it.
          target: as in `Executable.report`.

        Raises:
          EstimatorError: (a `ValueError`) neither a program that ran nor an `input_fn`.
        """
        if mode is None:
            mode = ModeKeys.TRAIN if input_fn is not None else self._mode_to_report()
        mode = _MODE_WORDS.get(mode, mode)
        check.one_of(mode, MODES, "the mode to report")
        if input_fn is not None:
            self._configure()
            data = DataSet(self._elements(input_fn, mode))
            made, state = self._prepared(mode, self._folder.agreed(), data)
            steps = self.config.ipu_run_config.iterations_per_loop // made.step_size
            return made.loop.trace(state, data, steps).lower().report(target)
        loop = self._modes[mode].loop if mode in self._modes else None
        if loop is None or loop.executable is None:
            raise check.refuse(
                f"nothing has run in mode {mode!r}, so that there is no program to report",
                "run it first, or give an input_fn whose first element says the shapes",
            )
        return loop.executable.report(target)

    def _mode_to_report(self) -> str:
        """Training or, if only other modes have run, the one that was made last."""
        ran = [key for key, mode in self._modes.items() if mode.loop and mode.loop.executable]
        return ModeKeys.TRAIN if ModeKeys.TRAIN in ran or not ran else ran[-1]

    # --- what the kinds of estimators differ in -------------------------------------------------

    @abc.abstractmethod
    def _new_mode(self, settings: Settings, mode: str) -> Mode:
        """A mode, whose programs are not made yet."""

    # --- how it is done -------------------------------------------------------------------------

    def _predictions(
        self,
        input_fn: Callable[..., Any],
        own: Sequence[SessionRunHook],
        checkpoint_path: str | None,
        keys: Sequence[str] | None,
        single: bool,
    ) -> Generator[Any]:
        self._configure()
        data = DataSet(map(features_of, self._elements(input_fn, ModeKeys.PREDICT)))
        mode, state = self._prepared(ModeKeys.PREDICT, self._path(checkpoint_path), data)
        with self._events(self.model_dir) as events:
            told = HookCallback(lambda: [*own, *mode.hooks], events)
            for sent in mode.loop.predict(state, data, None, [told]):
                stacked = of_keys(mode.predictions(sent), keys)
                for batch in unstacked(stacked, 1 + (told.replicas > 1)):
                    yield from examples(batch) if single else [batch]

    def _configure(self) -> None:
        """Configures the system, if the run config says how; the same again changes nothing."""
        options = self.config.ipu_run_config.ipu_options
        if options is not None:
            options.configure_ipu_system()

    def _elements(self, input_fn: Any, mode: str) -> Iterator[Any]:
        return elements_of(input_fn, mode, self._settings)

    def _prepared(self, key: str, path: str | None, data: DataSet) -> tuple[Mode, TrainState]:
        """A mode with its loop, and the state to begin with."""
        element, mode = data.first(), self._mode(key)
        return mode, self._beginning.prepared(mode, path, element)

    def _mode(self, key: str) -> Mode:
        if key not in self._modes:
            self._modes[key] = self._new_mode(self._settings, key)
        return self._modes[key]

    def _path(self, asked: str | None) -> str | None:
        """Of the checkpoint to be used."""
        return self._folder.agreed() if asked is None else asked

    def _events(self, folder: str) -> EventFile:
        """Curves, which only the chief writes."""
        is_chief = self._settings.workers_of(ModeKeys.TRAIN).is_chief
        return EventFile(folder, is_chief and self.config.is_chief)

    def _left(self, max_steps: int, path: str | None) -> int:
        """Steps until there are so many in all, in whole device loops."""
        per_loop = self.config.ipu_run_config.iterations_per_loop
        return max(0, -(-(max_steps - self._beginning.step(path)) // per_loop)) * per_loop

    @staticmethod
    def _loop_steps(mode: Mode, steps: int | None) -> int | None:
        return None if steps is None else steps // mode.step_size
