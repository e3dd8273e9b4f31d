"""Errors of the recorder itself: the call goes on as eager mode would, what it does is done once, and the defect is told.

An error is injected into each entry that instrumented code and the library have to the recorder, and into each method of the handlers
that the programs below reach: at its beginning, and after it has done its work.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import traceback
import warnings
from collections import defaultdict
from types import FunctionType

import pytest
from capture_programs import PROGRAMS, run

import tracejit as T
from tests import loop_programs
from tracejit.capture import defects, frame, reasons
from tracejit.capture.handlers import iteration, locking, outside_calls, ragged
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.origins import Origins
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.loop_recogniser import LoopRecogniser
from tracejit.capture.session import Session
from tracejit.capture.tensor_state import StateRecorder
from tracejit.capture.tensors import RecordingInterpreter
from tracejit.config import override
from tracejit.core.package_files import CAPTURE

NAMES = [
    "read_each_time_token", "dictionary_of_generated_rows", "copy_between_views_of_the_same",
    "dictionary_that_is_its_own_attributes", "list_whose_items_move", "standard_output_written", "contents_as_a_list",
    "list_changed_while_iterated", "number_used_by_numpy_from_an_attribute", "lock_around_the_work",
    "a_seed_that_the_program_computes", "values_of_tensors_printed", "functions_of_operator", "exception_chain_inspected",
    "noise_of_the_shape_of_a_tensor", "text_of_json", "deque_with_an_item_replaced_before_it_moves",
    "finally_overrides_return_and_break", "frozen_and_changed_in_the_meantime", "simple_namespace_changes", "list_shuffled",
    "same_tensor_twice_or_two_tensors", "name_that_cannot_be_imported", "keywords_that_are_no_texts", "state_of_a_module_kept",
    "slices_swapped_without_clone", "list_subclass_repeated_in_place", "read_each_time_getrandbits", "copies_of_objects",
    "iterator_from_outside", "defaultdict_of_state", "lru_cache_of_a_tensor_function", "constants_of_modules",
    "logger_with_numbers", "number_used_by_array_from_arithmetic", "global_read_and_written", "class_that_is_returned",
    "buffer_registered_and_changed", "loop_counts", "configuration_with_keys_that_come_and_go", "sets_and_dictionaries_order",
    "file_tested_by_os", "hook_registered_inside", "partialmethod_and_wraps", "number_used_by_named_tuple_from_an_attribute",
    "update_with_pairs_and_keywords", "full_deque_that_gets_numbers", "weakref_callbacks_of_locals", "subclasses_listed",
    "iterator_that_raises", "optimizer_with_a_schedule", "text_of_an_identity", "arithmetic_of_floats",
    "error_of_a_shape_caught", "read_each_time_time_ns", "number_used_by_functools_from_an_attribute",
    "hash_of_a_user_class_behind_a_dictionary", "method_of_a_class_is_replaced", "walrus_match_and_star_unpacking",
    "counter_in_a_closure", "dictionary_with_dots", "truth_of_not_not", "item_as_an_index", "identity_of_texts",
    "own_backward_after_the_call", "numpy_array_of_a_result", "copy_of_what_is_no_leaf", "dictionary_order_is_seen",
    "class_that_counts_in_a_loop", "number_used_by_date_from_arithmetic", "numbers_as_bounds_and_steps", "heap_and_bisect_kept",
    "warning_with_its_place", "shape_arithmetic", "loop_until_it_is_small", "sums_carry_errors", "arguments_used_in_all_ways",
    "keys_in_a_defaultdict_that_formats_read", "overridden_length_and_items_are_passed_over_by_c_code",
    "class_that_reads_globals_and_names_of_its_own", "outside_error_is_raised", "clock_that_is_read",
    "sizes_used_as_ranges_and_keys", "data_assigned_leaves_the_old_memory_to_others", "end_of_an_iterator_caught",
    "class_statement_with_pattern", "object_given_back_and_changed_outside", "assertion_on_a_tensor",
    "data_and_contents_written", "data_written_through", "coroutine_run_inside", "masked_selection_mean",
    "target_outside_the_classes_caught", "attributes_of_sys", "storage_of_a_thread_read_back",
    "tensors_in_sets_and_dictionaries", "number_used_by_random_from_an_attribute", "numbers_formatted",
    "class_that_c_code_of_its_base_registers", "frozen_sets_as_keys", "a_generator_that_the_call_makes",
    "variable_of_a_context_with_a_default", "dictionary_changes_of_all_kinds", "regular_expressions",
    "attributes_of_a_tensor_by_its_dictionary", "weak_reference_to_an_object", "hook_that_is_partial", "logger_that_is_off",
    "rows_chained", "modes_of_gradients_mixed", "errors_of_the_program_with_a_state", "class_with_a_metaclass_of_the_program",
    "dataclass_made_inside", "zero_division_caught", "number_used_by_tensors_from_an_attribute", "counter_kept",
    "array_of_numpy_from_outside", "argmax_as_a_branch", "variable_of_a_closure_is_deleted_and_made_again",
    "hooks_after_accumulation", "compiled_partial_function", "set_subclass_changed_by_operators",
    "number_used_by_characters_from_argument", "getters_of_items_attributes_and_methods",
    "global_is_rebound_deleted_and_made_again", "frozen_slots_dataclass", "adjoint_of_a_module",
    "callable_while_its_class_changes", "exit_stack_and_callbacks", "import_inside_with_another_name",
    "sum_min_max_over_generators", "appearing_float_of_an_object", "number_used_by_math_from_an_attribute",
    "number_used_by_conversions_from_argument", "object_reached_by_match", "sums_that_begin_with_numbers_from_outside",
    "sequence_protocol_without_iter", "big_ints", "slices_behind_names", "reflected_operators_of_subclasses_come_first",
    "packed_sequences", "tensors_of_many_numbers", "abstract_base_classes_of_collections",
    "ordered_dictionary_with_attributes_and_itself_inside", "class_with_everything_that_classes_have",
]  # fmt: skip
"""Programs of the corpus that reach as many methods as all of them do."""
LOOPS = ["with_numbers", "positions_updated", "in_a_list_from_the_end", "gru_with_outputs"]
LENGTHS = (40, 25, 30)


def _turned_and_cut():
    def fn(xs):
        outs, h = [], T.zeros(2)
        for x in xs:
            h = (h + x).tanh()
            outs.append(h)
        return T.stack(outs[::-1]), T.stack(outs[1:-1]), outs[0] + outs[-1]

    return fn, [lambda f, n=n: f(T.ones(n, 2)) for n in LENGTHS], None


def _rows_taken_apart():
    def fn(xs):
        h = T.zeros(2)
        for x in xs.unbind():
            h = (h + x).tanh()
        return h

    return fn, [lambda f, n=n: f(T.ones(n, 2)) for n in LENGTHS], None


def _every_second_row():
    def fn(xs):
        h = T.zeros(2)
        for t in range(xs.shape[0] // 2):
            h = (h + xs[2 * t]).tanh()
        return h

    return fn, [lambda f, n=n: f(T.ones(n, 2)) for n in (40, 24, 30)], None


def _loops_of_the_library():
    def fn(xs):
        carry, ys = T.scan(lambda h, x: ((h + x).tanh(), h * 2), T.zeros(2), xs)
        return carry, ys, T.while_loop(lambda n: n.sum() < 10, lambda n: (n + 1,), [carry])

    return fn, [lambda f: f(T.ones(10, 2))] * 2, None


def _memory_of_an_array():
    import numpy as np

    def fn(x):
        return x + T.from_numpy(np.array([1.0, 2.0], "float32"))

    return fn, [lambda f: f(T.ones(2))] * 2, None


def _warned_by_the_library():
    def fn(x):
        return T.nn.functional.mse_loss(x, T.ones(3, 2))

    return fn, [lambda f: f(T.ones(2))] * 2, None


LOCK = threading.Lock()


def _lock_that_is_entered():
    def fn(x):
        with LOCK:
            y = x * 2
        return y

    return fn, [lambda f: f(T.ones(2))] * 2, LOCK.locked


def _file_that_is_opened(lines):
    def fn(x, path):
        with open(path, "a") as file:
            file.write("line\n")
        return x * 2

    def maker():
        with tempfile.NamedTemporaryFile("w+", delete=False) as file:
            path = file.name
        return fn, [lambda f: f(T.ones(2), path)] * 2, lambda: lines(path)

    return maker


def _lines(path):
    with open(path) as file:
        return file.readlines()


def _truths_as_a_list():
    def fn(x):
        return (x > 0).tolist()

    return fn, [lambda f: f(T.ones(2))] * 2, None


def _list_that_some_steps_append_to():
    def fn(xs):
        kept = []
        for x in xs:
            if x > 0:
                kept.append(x * 2)
        return kept

    return fn, [lambda f, k=k: f((T.arange(100.0) * k).sin()) for k in range(1, 6)], None


OWN = {
    "turned and cut": _turned_and_cut,
    "rows taken apart": _rows_taken_apart,
    "every second row": _every_second_row,
    "loops of the library": _loops_of_the_library,
    "memory of an array": _memory_of_an_array,
    "warned by the library": _warned_by_the_library,
    "lock that is entered": _lock_that_is_entered,
    "file that is opened": _file_that_is_opened(_lines),
    "truths as a list": _truths_as_a_list,
    "list that some steps append to": _list_that_some_steps_append_to,
}


def _maker_of_loop(name):
    loop = vars(loop_programs)[name]
    given = [loop_programs.parameter(n, 2, loop_programs.WIDTH).detach() for n in LENGTHS]
    return lambda: (loop, [lambda f, xs=xs: f(xs) for xs in given], None)


MAKERS = {
    **{name: PROGRAMS[name][0] for name in NAMES},
    **{f"loop {name}": _maker_of_loop(name) for name in LOOPS},
    **OWN,
}


# -- what errors are injected into
def _isolated(cls):
    return {
        name: method for name, method in vars(cls).items() if isinstance(method, FunctionType) and hasattr(method, "__wrapped__")
    }


ENTRIES = [(frame.CaptureFrame, name) for name in _isolated(frame.CaptureFrame)] + [
    (RecordingInterpreter, name) for name in _isolated(RecordingInterpreter)
]
CONTEXTS = [
    (cls, name)
    for cls in (iteration.RecordedContext, locking._EnteredLock, outside_calls._EnteredResult)
    for name in ("__enter__", "__exit__")
]
ENDINGS = {
    "stop", "release_after_handler", "unhook", "hook", "unwatched", "empty", "release", "run", "perform", "error_of_program",
    "release_stand_ins", "without_stand_ins", "release_created", "_call_from_frame", "_check",
}  # fmt: skip
"""What the barriers themselves use after a defect, and what a barrier is part of."""


def _handlers():
    classes, found = [Handlers, Origins, Recorder, Session, StateRecorder, RecordingInterpreter, LoopRecogniser], []
    while classes:
        cls = classes.pop(0)
        if cls.__module__.startswith("tracejit.capture") and cls is not Handlers:
            found += [
                (cls, name)
                for name, method in vars(cls).items()
                if isinstance(method, FunctionType)
                and not name.startswith("__")
                and name not in ENDINGS
                and name not in _isolated(cls)
            ]
        classes += cls.__subclasses__() if cls in (Handlers, *Handlers.__subclasses__()) else []
    return list(dict.fromkeys(found))


TARGETS = [*ENTRIES, *CONTEXTS, *_handlers()]
NAME_OF = {target: f"{target[0].__name__}.{target[1]}" for target in TARGETS}

PARTLY_DONE = {
    # An element was taken of an iterator, and nobody can take it again.
    "IterationHandlers._note_consumed", "ContentHandlers.record_of",
    # A list is shuffled: numbers were drawn.
    "GeneratorHandlers._picked", "ContainerHandlers.replace_items",
    # Steps of a loop were left out, or were about to be, and nobody knows which.
    "LoopRecogniser._emit",
    "RecordingInterpreter.leave_generators",
    # A loop of the library has run steps of the program.
    "RecordingInterpreter.run_scan", "RecordingInterpreter.run_while_loop", "StateRecorder.truncate",
}  # fmt: skip
"""Where a part of an operation of the program may have been done: InternalError says so."""
ABSORBED = {"RaggedHandlers.reduction"}
"""What is tried in place of the program's own way, which is taken if it fails."""
PROGRAMS_THAT_TELL = {"warning_with_its_place", "keywords_that_are_no_texts"}
"""One records all warnings, that of the defect among them; one hands C code keywords that Python's own call refuses."""


ragged._rules()  # a table that is made on the first call, of the methods that there are then
_TABLES = defaultdict(list)
for _module in [m for name, m in sys.modules.items() if name.startswith("tracejit.capture")]:
    for _table in [t for t in vars(_module).values() if type(t) is dict]:
        for _key, _value in _table.items():
            _function = _value[0] if type(_value) is tuple and _value else _value
            if isinstance(_function, FunctionType):
                _TABLES[_function].append((_table, _key))

_INJECTED = """
def injected(*given, **named):
    recorder = current.recorder
    if recorder is None or recorder.stopped:
        return method(*given, **named)
    calls.append(None)
    mine = len(calls) == 1
    if is_entry and mine:
        active()  # as each of them begins
    if mine and not after:
        fail(error)
    result = method(*given, **named)
    if mine and after:
        fail(error)
    return result

def fail(error):
    if error is KeyError:
        {}["injected"]  # a defect is none that is raised on purpose
    raise error("injected")

def entry(*given, **named):
    return injected(*given, **named)
"""

_CODE = compile(_INJECTED, CAPTURE + "injected.py", "exec")


@contextlib.contextmanager
def injected(target, error, after=False, raises=True):
    """The first call of a method while a call is recorded raises; with raises=False, nothing does.  Yields the calls."""
    cls, name = target
    known, calls = vars(cls)[name], []
    method = getattr(known, "__wrapped__", known)
    names = {
        "__name__": "tracejit.capture.injected", "method": method, "calls": calls, "after": after, "error": error,
        "current": frame.current, "is_entry": cls is frame.CaptureFrame, "active": frame.active,
    }  # fmt: skip
    if not raises:
        calls.append(None)
    exec(_CODE, names)
    if cls is frame.CaptureFrame:
        new = defects._isolated_entry_point(name, names["entry"], frame.current)
    elif target in ENTRIES:
        new = defects._isolated_method(names["entry"])
    elif target in CONTEXTS:
        new = defects._isolated_context(name, names["entry"])
    else:
        new = names["injected"]
    locations = [(table, key, table[key]) for table, key in _TABLES.get(known, ())]
    setattr(cls, name, new)
    for table, key, value in locations:
        table[key] = (new, *value[1:]) if type(value) is tuple else new
    try:
        yield calls
    finally:
        setattr(cls, name, known)
        for table, key, value in locations:
            table[key] = value


@pytest.fixture(scope="module")
def reached():
    """Of each method the programs that call it while they are recorded, and the calls of each program that run eagerly."""
    found = defaultdict(list)
    with contextlib.ExitStack() as stack, override(backend="interpret", verify=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = {target: stack.enter_context(injected(target, AssertionError, raises=False)) for target in TARGETS}
        for name, maker in MAKERS.items():
            for made in calls.values():
                made[:] = [None]
            run(maker, T.compile)
            for target, made in calls.items():
                if len(made) > 1 and name not in PROGRAMS_THAT_TELL:
                    found[target].append(name)
    return found


def _with_defect(target, name, error, after=False):
    """What a program comes to eagerly; what it comes to compiled, where a method fails; the compiled function; whether it has failed."""
    with override(backend="interpret", verify=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, _ = run(MAKERS[name], lambda function: function)
        with injected(target, error, after) as calls:
            compiled, function = run(MAKERS[name], T.compile)
    return eager, compiled, function, bool(calls)


def _check(target, name, error, after=False):
    eager, compiled, function, has_failed = _with_defect(target, name, error, after)
    if not has_failed:  # it is reached by a handler in whose table another one is found
        assert NAME_OF[target] in ABSORBED
        return
    codes = {reason.code for reason in getattr(function, "reasons", ())}
    partly = NAME_OF[target] in PARTLY_DONE
    if compiled != eager and partly:
        wrong = [got for got, wanted in zip(compiled[0], eager[0], strict=True) if got != wanted]
        assert wrong[0][:2] == ("raised", defects.InternalError if error is AssertionError else error), (target, name)
        return
    assert compiled == eager, (target, name)
    if NAME_OF[target] not in ABSORBED:
        assert "recording_defect" in codes or any(outcome[0] == "raised" for outcome in compiled[0]), (target, name, codes)


def test_every_entry_is_reached_by_a_program(reached):
    assert [NAME_OF[target] for target in (*ENTRIES, *CONTEXTS) if not reached[target]] == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("target", ENTRIES + CONTEXTS, ids=NAME_OF.get)
def test_a_defect_in_an_entry_changes_nothing_but_that_the_call_runs_eagerly(reached, target, after):
    _check(target, reached[target][0], AssertionError, after)


def test_a_defect_in_any_handler_changes_nothing_but_that_the_call_runs_eagerly(reached):
    wrong = []
    for k, target in enumerate(TARGETS):
        # One error that Python's own operations never raise, or one that they do; not where a method is bound to a stand-in of a number.
        error = (AssertionError, KeyError)[k % 2 and NAME_OF[target] != "ArrayHandlers._compute_post_program"]
        if target not in ENTRIES and target not in CONTEXTS and reached[target]:
            try:
                _check(target, reached[target][0], error)
            except AssertionError:
                wrong.append((NAME_OF[target], reached[target][0], traceback.format_exc(limit=1)[-300:]))
    assert wrong == []


def _counted(x, log):
    log.append(1)
    return x * 2


@pytest.fixture
def failing():
    """A function whose recording fails once its only effect has been made."""
    with injected((Origins, "mark_created"), KeyError, raises=True) as calls:
        yield T.compile(lambda x, log: [_counted(x, log)]), calls


def test_a_defect_is_told_by_explain_and_by_one_warning(failing):
    function, _ = failing
    log = []
    with (
        override(verify=False),
        pytest.warns(
            RuntimeWarning, match="tracejit could not record .* KeyError: 'injected' .*tracejit/capture/injected.py"
        ) as told,
    ):
        results = [function(T.ones(2), log)[0].tolist() for _ in range(3)]
    assert results == [[2.0, 2.0]] * 3 and log == [1, 1, 1]
    assert len(told) == 1
    text = str(next(iter(function.reasons)))
    assert "[recording_defect] the code that records has failed: KeyError: 'injected' (tracejit/capture/injected.py" in text
    assert "test_defects.py" in text and "please report it" in text
    assert "the code that records has failed" in function.explain()


def test_a_defect_is_raised_with_its_location_where_the_library_verifies_itself(failing):
    function, _ = failing
    with (
        override(verify=True),
        pytest.raises(defects.InternalError, match=r"a defect of tracejit: KeyError.*injected.py:") as raised,
    ):
        function(T.ones(2), [])
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "operation", [lambda d: d["no"], lambda d: [][3], lambda d: d.no, lambda d: 1 / (len(d) - 1), lambda d: int("x")]
)
def test_errors_of_the_program_stay_its_own(operation):
    def fn(x, d):
        try:
            operation(d)
        except Exception as error:
            return x * 2, type(error), str(error)

    function = T.compile(fn)
    for _ in range(3):
        found, wanted = function(T.ones(2), {"a": 1}), fn(T.ones(2), {"a": 1})
        assert found[1:] == wanted[1:]
    assert function.stats.compiled_calls == 2, function.explain()


def test_an_interrupt_in_a_handler_reaches_the_program():
    function = T.compile(lambda x: [x * 2])
    with injected((Origins, "mark_created"), KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        function(T.ones(2))


def test_the_reason_is_in_the_catalogue():
    assert "defect of tracejit" in reasons.make("recording_defect", "x").remedy
