"""The base of both kinds of estimators: training, evaluation and prediction by device loops."""

from __future__ import annotations

import abc
import itertools
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipujax.doors.estimators.checkpoint_saver import CheckpointSaver
from ipujax.doors.estimators.estimator_checks import check, check_steps
from ipujax.doors.estimators.estimator_mode import EstimatorMode, EstimatorSettings
from ipujax.doors.estimators.estimator_spec import MODES, ModeKeys, check_hooks
from ipujax.doors.estimators.event_files import EventFile
from ipujax.doors.estimators.initial_states import InitialStates
from ipujax.doors.estimators.input_data import DataSet, open_data_set
from ipujax.doors.estimators.ipu_run_config import RunConfig
from ipujax.doors.estimators.metric_totals import MetricTotals, unstack_tree
from ipujax.doors.estimators.model_fn import FunctionByName
from ipujax.doors.estimators.model_folder import ModelFolder
from ipujax.doors.estimators.predictions import (
    select_features,
    select_predictions_by_key,
    split_into_examples,
)
from ipujax.doors.estimators.saved_model_export import (
    call_receiver_functions,
    make_zero_element,
    write_saved_models,
)
from ipujax.doors.estimators.saver_listeners import (
    CheckpointSaverListener,
    check_listeners,
    check_saving_is_set,
)
from ipujax.doors.estimators.session_hooks import HookCallback, SessionRunHook
from ipujax.doors.estimators.training_log import TrainingLog, write_scores
from ipujax.doors.estimators.workers import StopAgreement
from ipujax.ground import Keywords, PyTree, StrPath, api_boundary
from ipujax.training import TrainState, Tree

if TYPE_CHECKING:
    from ipujax.report import Report
    from ipujax.system import Target

# The modes by the names of the methods that run them.
_MODE_WORDS = {"evaluate": ModeKeys.EVAL, "predict": ModeKeys.PREDICT}


class Estimator(abc.ABC):
    """A model that device loops train and use, with its state in the files of a folder.

    Args:
      model_fn: the user's model function.
      model_dir: the folder of checkpoints; that of `config`, or a temporary folder, by default.
      config: a `RunConfig` with an `ipu_run_config`.
      params: a dict for the user's functions.
      warm_start_from: a checkpoint whose variables to begin with, where the folder has none.
      batch_sizes: the batch size of each mode, over all replicas and workers; `params` has that of
        one replica.
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
            raise check.value_error(
                f"config is {config!r}, which says nothing of IPUs",
                "give config=ipu_run_config.RunConfig(ipu_run_config=IPURunConfig(...))",
            )
        if params is not None and not isinstance(params, dict):
            raise check.value_error(f"params is {params!r}, but must be a dict", "give a dict")
        self._model_fn = model_fn
        if init_fn is not None:
            init_fn = FunctionByName(init_fn, "init_fn", (), ("key", "features"))
        if warm_start_from is not None:
            check.require_path(warm_start_from, "warm_start_from")
        self._settings = EstimatorSettings(config, dict(params or {}), batch_sizes)
        workers = self._settings.workers_of(ModeKeys.TRAIN)
        self._folder = ModelFolder(model_dir, config, workers)
        seed = self._settings.key_seed
        self._beginning = InitialStates(self._folder, init_fn, warm_start_from, seed, workers)
        self._modes: dict[str, EstimatorMode] = {}

    # --- the original's interface ---------------------------------------------------------------

    @property
    def config(self) -> RunConfig:
        """The `RunConfig` of the estimator."""
        return self._settings.config

    @property
    def params(self) -> Keywords:
        """A copy of the dict that the user's functions get."""
        return dict(self._settings.params)

    @property
    def model_fn(self) -> Callable[..., PyTree]:
        """The user's model function."""
        return self._model_fn

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""
        return self._folder.path

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the folder of an evaluation's event files."""
        return self._folder.eval_dir(name)

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint; None if there is none."""
        return self._folder.latest_checkpoint_path()

    def get_variable_names(self) -> list[str]:
        """Returns names of variables, of untrained state as `state/...`, and `global_step`.

        Raises:
          EstimatorError: (a `ValueError`) there is no checkpoint yet.
        """
        return sorted(self._folder.read_values_by_name())

    def get_variable_value(self, name: str | Sequence[str]) -> PyTree:
        """Returns a value of the newest checkpoint, a NumPy array.

        Raises:
          EstimatorError: (a `ValueError`) there is no checkpoint yet, or no such name in it.
        """
        if isinstance(name, (list, tuple)):
            return [self.get_variable_value(variable_name) for variable_name in name]
        values_by_name = self._folder.read_values_by_name()
        return values_by_name[check.require_one_of(name, values_by_name, "the name of a variable")]

    @api_boundary
    def train(
        self,
        input_fn: Callable[..., object],
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> Any:
        """Trains, starting from the newest checkpoint; see the class."""
        user_hooks, listeners = check_hooks(hooks, "hooks"), check_listeners(saving_listeners)
        check_saving_is_set(listeners, self.config)
        if steps is not None and max_steps is not None:
            raise check.value_error("both steps and max_steps are given", "give one of them")
        check_steps(steps, self.config.ipu_run_config.iterations_per_loop)
        if max_steps is not None:
            check.require_integer(max_steps, "max_steps", at_least=1)
        self._configure_system()
        with self._folder.lock_for_training() as was_interrupted:
            path = self._folder.latest_path_of_chief()
            remaining_steps = (
                steps if max_steps is None else self._count_remaining_steps(max_steps, path)
            )
            if remaining_steps == 0:
                return self
            position = (
                self._folder.position_in_checkpoint(path) if was_interrupted and path else None
            )
            data = DataSet(self._open_elements(input_fn, ModeKeys.TRAIN), position)
            mode, state = self._prepare_mode(ModeKeys.TRAIN, path, data)
            with (
                self._open_event_file(self.model_dir) as events,
                TrainingLog(mode, self.config, events, data.peek_element()) as journal,
            ):
                hook_callback = HookCallback(lambda: [*user_hooks, *mode.model_hooks], events)
                saver = CheckpointSaver.saver_from_config(
                    self.config, self._folder, mode, data, listeners, events
                )
                callbacks = [mode, journal, hook_callback, StopAgreement(mode.workers), saver]
                state = mode.loop.fit(
                    state, data, self._loop_steps(mode, remaining_steps), callbacks
                )
            self._beginning.remember_state(
                self._folder.latest_path_of_chief(), mode.to_user_state(state)
            )
        return self

    @api_boundary
    def evaluate(
        self,
        input_fn: Callable[..., object],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, PyTree]:
        """Returns metrics over some steps, or until the data ends; see the class."""
        user_hooks = check_hooks(hooks, "hooks")
        check_steps(steps, self.config.ipu_run_config.iterations_per_loop)
        self._configure_system()
        data = DataSet(self._open_elements(input_fn, ModeKeys.EVAL))
        mode, state = self._prepare_mode(
            ModeKeys.EVAL, self._checkpoint_to_use(checkpoint_path), data
        )
        step, totals = state.step, MetricTotals()
        with self._open_event_file(self.eval_dir(name)) as events:
            hook_callback = HookCallback(lambda: [*user_hooks, *mode.model_hooks], events)
            for results in mode.loop.predict(
                state, data, self._loop_steps(mode, steps), [hook_callback]
            ):
                mode.add_to_totals(results, hook_callback.replicas, totals)
            totals.add_other_workers(mode.workers)
            values = totals.compute_values() | {"global_step": np.int64(step)}
            write_scores(events, values, step)
        return values

    def predict(
        self,
        input_fn: Callable[..., object],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[PyTree]:
        """Yields predictions, at most a given number, until the data ends; see the class."""
        user_hooks = check_hooks(hooks, "hooks")
        keys = (
            None if predict_keys is None else check.require_sequence(predict_keys, "predict_keys")
        )
        yields_examples = check.require_flag(yield_single_examples, "yield_single_examples")
        if num_predictions is not None:
            check.require_integer(num_predictions, "num_predictions", at_least=0)
        predictions = self._iterate_predictions(
            input_fn, user_hooks, checkpoint_path, keys, yields_examples
        )
        return itertools.islice(predictions, num_predictions)

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
          serving_input_receiver_fn: returns the features' shapes and dtypes, a pytree of
            `jax.ShapeDtypeStruct`; for TRAIN and EVAL a tuple of features and labels.
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
        """Calls `export_saved_model` by its older name; `strip_default_attrs` has no effect."""
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
        """Saves the trained model in several modes, as `export_saved_model` does in one.

        The folder has the program of PREDICT if that is exported, else of EVAL or TRAIN; each other
        program has a folder in it, named as the mode.
        """
        structs = call_receiver_functions(input_receiver_fn_map, "input_receiver_fn_map")
        for mode in structs:
            check.require_one_of(mode, MODES, "a mode to export")
        path = self._checkpoint_to_use(checkpoint_path)
        if path is None:
            raise check.value_error(f"{self.model_dir} has no checkpoint to export", "train first")
        self._configure_system()
        programs: dict[str, tuple[EstimatorMode, TrainState, Tree]] = {}
        for key in sorted(structs, key=MODES.index, reverse=True):
            state = self._beginning.load_or_init_state(path, make_zero_element(structs[key]))
            programs[key] = self._find_or_build_mode(key), state, structs[key]
        return write_saved_models(export_dir_base, programs, assets_extra, as_text)

    @api_boundary
    def report(
        self,
        mode: str | None = None,
        input_fn: Callable[..., object] | None = None,
        target: str | Target | None = None,
    ) -> Report:
        """Returns the modelled cost of a mode's device loop on a chip.

        Args:
          mode: one of `ModeKeys`, or "evaluate" or "predict"; None for training or, if only other
            modes ran, the one that was made last.
          input_fn: None for the program that ran last; otherwise the program for the first
            element of this data set is modelled, without compiling or running it.
          target: as in `Executable.report`.

        Raises:
          EstimatorError: (a `ValueError`) neither a program that ran nor an `input_fn`.
        """
        if mode is None:
            mode = ModeKeys.TRAIN if input_fn is not None else self._mode_to_report()
        mode = _MODE_WORDS.get(mode, mode)
        check.require_one_of(mode, MODES, "the mode to report")
        if input_fn is not None:
            self._configure_system()
            data = DataSet(self._open_elements(input_fn, mode))
            prepared_mode, state = self._prepare_mode(
                mode, self._folder.latest_path_of_chief(), data
            )
            steps = self.config.ipu_run_config.iterations_per_loop // prepared_mode.step_size
            return prepared_mode.loop.trace(state, data, steps).lower().report(target)
        loop = self._modes[mode].loop if mode in self._modes else None
        if loop is None or loop.executable is None:
            raise check.value_error(
                f"nothing has run in mode {mode!r}, so that there is no program to report",
                "run it first, or give an input_fn whose first element says the shapes",
            )
        return loop.executable.report(target)

    def _mode_to_report(self) -> str:
        """Returns training or, if only other modes ran, the mode that was made last."""
        modes_with_programs = [
            key for key, mode in self._modes.items() if mode.loop and mode.loop.executable
        ]
        return (
            ModeKeys.TRAIN
            if ModeKeys.TRAIN in modes_with_programs or not modes_with_programs
            else modes_with_programs[-1]
        )

    # --- the part that each kind of estimator implements ------------------------------------------

    @abc.abstractmethod
    def _new_mode(self, settings: EstimatorSettings, mode: str) -> EstimatorMode:
        """Returns a mode, whose programs are not made yet."""

    # --- implementation ---------------------------------------------------------------------------

    def _iterate_predictions(
        self,
        input_fn: Callable[..., object],
        user_hooks: Sequence[SessionRunHook],
        checkpoint_path: str | None,
        keys: Sequence[str] | None,
        yields_examples: bool,
    ) -> Generator[PyTree]:
        self._configure_system()
        data = DataSet(map(select_features, self._open_elements(input_fn, ModeKeys.PREDICT)))
        mode, state = self._prepare_mode(
            ModeKeys.PREDICT, self._checkpoint_to_use(checkpoint_path), data
        )
        with self._open_event_file(self.model_dir) as events:
            hook_callback = HookCallback(lambda: [*user_hooks, *mode.model_hooks], events)
            for results in mode.loop.predict(state, data, None, [hook_callback]):
                predictions = select_predictions_by_key(mode.select_predictions(results), keys)
                for batch in unstack_tree(predictions, 1 + (hook_callback.replicas > 1)):
                    yield from split_into_examples(batch) if yields_examples else [batch]

    def _configure_system(self) -> None:
        """Configures the system as the run config says; equal options change nothing."""
        options = self.config.ipu_run_config.ipu_options
        if options is not None:
            options.configure_ipu_system()

    def _open_elements(self, input_fn: object, mode: str) -> Iterator[PyTree]:
        return open_data_set(input_fn, mode, self._settings)

    def _prepare_mode(
        self, key: str, path: str | None, data: DataSet
    ) -> tuple[EstimatorMode, TrainState]:
        """Returns a mode with its loop, and the state to begin with."""
        element, mode = data.peek_element(), self._find_or_build_mode(key)
        return mode, self._beginning.load_loop_state(mode, path, element)

    def _find_or_build_mode(self, key: str) -> EstimatorMode:
        if key not in self._modes:
            self._modes[key] = self._new_mode(self._settings, key)
        return self._modes[key]

    def _checkpoint_to_use(self, requested_path: str | None) -> str | None:
        """Returns the path of the checkpoint to use."""
        return self._folder.latest_path_of_chief() if requested_path is None else requested_path

    def _open_event_file(self, folder: str) -> EventFile:
        """Returns the event file of a folder, which only the chief writes."""
        is_chief = self._settings.workers_of(ModeKeys.TRAIN).is_chief_process
        return EventFile(folder, is_chief and self.config.is_chief)

    def _count_remaining_steps(self, max_steps: int, path: str | None) -> int:
        """Returns the steps until a total number is reached, in whole device loops."""
        per_loop = self.config.ipu_run_config.iterations_per_loop
        return max(0, -(-(max_steps - self._beginning.global_step_of(path)) // per_loop)) * per_loop

    @staticmethod
    def _loop_steps(mode: EstimatorMode, steps: int | None) -> int | None:
        return None if steps is None else steps // mode.step_size
