"""Which call of a program its receipt measures, from stacks that were made up."""

from __future__ import annotations

import pytest
from ftax_run.account import Account, HostTime, ProcessAccount
from ftax_run.frames import Place
from ftax_run.sums import Sums
from ftax_run.target import list_targets
from ftax_run.window import Window

SITE = "/env/lib/python3.11/site-packages"
SCRIPT: Place = ("/home/me/app.py", 90, "<module>")
MAIN: Place = ("/home/me/app.py", 80, "main")
CALL: Place = (f"{SITE}/torch/nn/modules/module.py", 1789, "Module._call_impl")
MODEL: Place = ("/home/me/model.py", 12, "Model.forward")
BLOCK: Place = ("/home/me/model.py", 4, "Block.forward")
LINEAR: Place = (f"{SITE}/torch/nn/modules/linear.py", 134, "Linear.forward")
BACKWARD: Place = (f"{SITE}/torch/_tensor.py", 600, "Tensor.backward")
STEP: Place = ("/home/me/app.py", 41, "train_step")

Stacks = dict[tuple[Place, ...], float]

IN_MODEL = (CALL, MODEL, CALL, BLOCK, CALL, LINEAR)


def list_names(stacks: Stacks, *, has_device: bool = True) -> list[str]:
    return [target.name for target in list_targets(make_account(stacks, has_device=has_device))]


def make_account(stacks: Stacks, *, has_device: bool = True) -> Account:
    process = ProcessAccount(7)
    if has_device:
        process.windows = [Window(count=10, wall=1e9, stacks=Sums(stacks))]
    else:
        process.host = HostTime(total=10, wall=1e9, stacks=Sums(stacks))
    return Account(["python", "app.py"], processes=[process])


@pytest.mark.parametrize("has_device", [True, False])
def test_the_outermost_module_that_is_hot(has_device: bool) -> None:
    stacks = {(SCRIPT, MAIN, *IN_MODEL): 8.0, (SCRIPT, MAIN): 2.0}
    names = list_names(stacks, has_device=has_device)
    assert names == ["Model.forward", "Block.forward", "Linear.forward", "main"]


def test_what_is_said_of_a_target() -> None:
    target = list_targets(make_account({(SCRIPT, MAIN, *IN_MODEL): 3.0, (SCRIPT, MAIN): 1.0}))[0]
    assert (target.file, target.line, target.is_module) == ("/home/me/model.py", 12, True)
    assert target.caller == "app.py:80 main"
    assert target.share == 0.75


def test_a_training_step_around_a_model() -> None:
    stacks = {
        (SCRIPT, MAIN, STEP, *IN_MODEL): 6.0,  # though the forward pass holds most
        (SCRIPT, MAIN, STEP, BACKWARD): 3.0,
        (SCRIPT, MAIN): 1.0,
    }
    assert list_names(stacks)[:2] == ["train_step", "Model.forward"]


def test_a_training_loop_that_is_no_function() -> None:
    # main comes first, but is called once; then its model is measured, with its backward pass.
    stacks = {
        (SCRIPT, MAIN, *IN_MODEL): 3.0,
        (SCRIPT, MAIN, BACKWARD): 5.0,
        (SCRIPT, MAIN, ("/home/me/app.py", 30, "log")): 2.0,
    }
    assert list_names(stacks)[:2] == ["main", "Model.forward"]


def test_frames_of_an_event_loop_are_passed_over() -> None:
    loop: Place = ("/usr/lib/python3.11/asyncio/base_events.py", 1922, "BaseEventLoop._run_once")
    serve: Place = ("/home/me/app.py", 70, "serve")
    stacks = {
        (SCRIPT, loop, MAIN, serve, *IN_MODEL): 9.0,
        (SCRIPT, loop, ("/home/me/app.py", 20, "client")): 1.0,
    }
    assert list_names(stacks) == [
        "Model.forward", "Block.forward", "Linear.forward", "client", "serve", "main",
    ]  # fmt: skip


def test_a_model_of_a_library_below_its_loop() -> None:
    stacks = {
        (SCRIPT, MAIN, (f"{SITE}/transformers/generation/utils.py", 2700, "Mixin._sample"), CALL,
         (f"{SITE}/transformers/utils/generic.py", 900, "can_return_tuple.<locals>.wrapper"),
         (f"{SITE}/transformers/models/llama.py", 459, "Llama.forward"), CALL, LINEAR): 9.0,
    }  # fmt: skip
    target = list_targets(make_account(stacks))[0]
    assert (target.name, target.caller) == ("Llama.forward", "app.py:80 main")


def test_what_takes_most_but_runs_once() -> None:
    build: Place = ("/home/me/app.py", 10, "build")
    stacks = {(SCRIPT, MAIN, build): 7.0, (SCRIPT, MAIN, *IN_MODEL): 3.0}
    assert list_names(stacks, has_device=False)[:2] == ["build", "Model.forward"]


def test_a_function_that_calls_itself_counts_once() -> None:
    walk: Place = ("/home/me/app.py", 10, "walk")
    assert list_names({(SCRIPT, walk, walk, walk): 1.0}) == ["walk"]


@pytest.mark.parametrize(
    "stacks", [{}, {(SCRIPT,): 1.0}, {(SCRIPT, ("/usr/lib/python3.11/json.py", 3, "dumps")): 1.0}]
)
def test_no_function_of_the_program(stacks: Stacks) -> None:
    assert list_names(stacks) == []
    assert list_targets(Account(["make"])) == []
