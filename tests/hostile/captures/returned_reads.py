"""Numbers that are read of tensors and returned, and others that go elsewhere too. See
`table.py`."""

from __future__ import annotations

import collections
import functools
import json
import logging
import math
import operator
import queue
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from hostile.captures.table import DEPENDS, MEMORY, Scene, one, refused, right
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from support.small_models import normal


@right(recorded=1)
def only_an_item(x: Tensor) -> Any:
    return x.sum().item()


@right(recorded=1)
def numbers_of_all_kinds(x: Tensor) -> Any:
    count = (x > 0).sum()
    return {
        "loss": float(x.sum()),
        "count": int(count),
        "any": bool((x > 0.5).any()),
        "rest": [count.item(), x.half().sum().item(), float(count), bool(count), None, 3, "text"],
        "result": x * 2,
    }


@right(recorded=1)
def lists_of_numbers(x: Tensor) -> Any:
    return x.tolist(), x.sum().tolist(), [row.tolist() for row in x], (x > 0).tolist()


@right(recorded=1)
def as_many_numbers_as_there_are(x: Tensor) -> Any:
    return x.relu().nonzero().tolist(), x


@right(recorded=1)
def one_number_twice(x: Tensor) -> Any:
    total = x.sum()
    value = total.item()
    return value, [value], total.item()


@right(recorded=1)
def before_and_after_a_write(x: Tensor) -> Any:
    total = x.sum()
    before, all_before = total.item(), x.tolist()
    total.mul_(3)
    y = x.clone().mul_(2)
    return before, float(total), all_before, y.tolist()


@right(recorded=1)
def of_a_weight_that_is_written() -> Scene:
    net = nn.Linear(4, 1)

    def work(x: Tensor) -> Any:
        before = net.weight.sum().item()
        net.weight.mul_(0.5)
        return before, float(net(x).sum()), net.bias.item()

    return Scene(work, watch=lambda: list(net.parameters()))


@right(recorded=1)
def of_an_argument_that_is_written() -> Scene:
    def work(x: Tensor) -> Any:
        before = x[0].tolist()
        x.add_(1)
        return before, x[0].tolist()

    return Scene(work)


@right(recorded=1)
def odd_values() -> Scene:
    values = [math.nan, -0.0, math.inf, -math.inf, 5e-324, 0.0]

    def give(seed: int) -> tuple[Any, ...]:
        return torch.tensor(values[seed % 6], dtype=torch.float64), torch.tensor(2**63 - 1 - seed)

    return Scene(lambda x, n: (x.item(), float(-x), n.item(), [x.tolist(), bool(x)]), give)


@right(recorded=1)
def of_a_number_itself(x: Tensor) -> Any:
    return float(float(x.sum())), bool((x > 0).all().item()), int(x.argmax().item())


@right(recorded=1)
def on_a_long_way(x: Tensor) -> Any:
    def pack(*values: Any, **named: Any) -> Any:
        return [*values], {**named}

    @functools.wraps(pack)
    def around(*values: Any, **named: Any) -> Any:
        return pack(*values, **named)

    held = {"a": x.sum().item()}
    waiting = collections.deque([x.mean().item()])
    (value,) = [waiting.pop()]
    first, *rest = (x.amax().item(), x.amin().item(), value)
    (more, named) = around(first, held.pop("a"), *rest, last=float(x[0, 0]))
    return more[::-1], named, [*map(float, x[0])], (lambda: x[1, 1].item())()


class Answer(NamedTuple):
    loss: float
    result: Tensor


@right(recorded=1)
def in_a_named_tuple(x: Tensor) -> Any:
    return Answer(loss=x.sum().item(), result=x)


@dataclass
class Report:
    loss: float
    result: Tensor


pytree.register_dataclass(Report)


@right(recorded=1)
def in_a_dataclass(x: Tensor) -> Any:
    return Report(loss=x.sum().item(), result=x * 2)


@refused("cannot capture")
def in_an_object(x: Tensor) -> Any:
    answer = type("Anything", (), {})()
    answer.loss = x.sum().item()
    return answer


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.tells = nn.Linear(4, 4), True

    def forward(self, x: Tensor) -> Any:
        y = self.layer(x)
        return (y, y.norm().item()) if self.tells else y


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Counts(), Counts()

    def forward(self, x: Tensor) -> Any:
        y, one = self.first(x)
        z, other = self.second(y)
        return z, {"norms": (one, other)}


@right(recorded=1)
def of_parts() -> Any:
    return Both()


@right()
def by_a_flag_that_changes() -> Scene:
    net = Counts()
    return Scene(net, disturb=lambda at: setattr(net, "tells", bool(at)))


@right(recorded=2, replayed=4)
def of_a_training_step() -> Scene:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def work(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.dropout(net(x), 0.3).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "size": float(net.weight.detach().norm())}

    return Scene(work, around=torch.enable_grad, watch=lambda: list(net.parameters()))


@right(recorded=1)
def in_text_that_is_never_made() -> Scene:
    quiet = logging.getLogger("ftax.tests.quiet")
    quiet.setLevel(logging.ERROR)

    def work(x: Tensor) -> Any:
        loss = x.sum().item()
        quiet.debug("loss %f", loss)
        return loss

    return Scene(work)


@right(recorded=1)
def beside_one_that_is_the_same_each_time(x: Tensor) -> Any:
    return x * torch.linspace(0, 1, 5).sum().item(), x.sum().item()


@right(recorded=1, on_host_read="check")
def beside_one_that_is_compared() -> Scene:
    # Calls 0, 1 and 5 go one way, the others the other.
    return Scene(
        lambda x: (x.exp() if x.sum() > 0 else x.neg(), x.mean().item()),
        lambda seed: (normal(3, 4, seed=seed).abs() * (-1 if seed in (3, 4) else 1),),
    )


@refused(DEPENDS)
def beside_one_that_decides(x: Tensor) -> Any:
    return x.exp() if x.amax().item() > 0.3 else x, x.sum().item()


@refused(DEPENDS)
def times_two(x: Tensor) -> Any:
    return x.sum().item() * 2


@refused(DEPENDS)
def added_up(x: Tensor) -> Any:
    return sum(row.sum().item() for row in x)


@refused(DEPENDS)
def rounded(x: Tensor) -> Any:
    return round(float(x.sum()), 3)


@refused(DEPENDS)
def cut_to_an_int(x: Tensor) -> Any:
    return int(x.sum() * 10)


@refused(DEPENDS)
def in_a_text(x: Tensor) -> Any:
    loss = x.sum().item()
    return f"{loss:.3f}", loss


@refused(DEPENDS)
def in_json(x: Tensor) -> Any:
    loss = x.sum().item()
    return json.dumps([loss]), loss


@refused(DEPENDS)
def compared_with_what_seldom_comes(x: Tensor) -> Any:
    loss = x.sum().item()
    return (x * 2 if loss > 1e6 else x), loss


@refused(DEPENDS)
def compared_with_one_number() -> Scene:
    def work(x: Tensor) -> Any:
        loss = x.sum().item()
        return (x * 2 if loss == 14 else x), loss

    return Scene(work, lambda seed: (torch.arange(4.0) + 2 * seed,))


@refused(DEPENDS)
def asked_whether_it_is_nan() -> Scene:
    def work(x: Tensor) -> Any:
        loss = x.sum().item()
        return (x.new_zeros(4) if math.isnan(loss) else x), loss

    return Scene(work, lambda seed: (normal(4, seed=seed) * (math.nan if seed > 2 else 1),))


@refused(DEPENDS)
def replaced_where_it_is_nan() -> Scene:
    def work(x: Tensor) -> Any:
        return np.nan_to_num(np.asarray(x.sum().item())).item()

    return Scene(work, lambda seed: (normal(4, seed=seed) * (math.nan if seed > 2 else 1),))


@refused(DEPENDS)
def asked_for_its_type_first(x: Tensor) -> Any:
    loss = x.sum().item()
    if type(loss) is float and loss > 0.7:
        return x * 2, loss
    return x, loss


@refused(DEPENDS)
def asked_for_its_type_by_a_table(x: Tensor) -> Any:
    loss = x.sum().item()
    return x * {float: 1.0}.get(type(loss), 2.0), loss


@refused(DEPENDS)
def asked_for_its_class(x: Tensor) -> Any:
    loss = float(x.sum())
    return (x if isinstance(loss, float) and loss < 0.7 else x * 2), loss


@refused(DEPENDS)
def matched() -> Scene:
    def work(x: Tensor) -> Any:
        flag = bool((x > 1.5).any())
        match flag:
            case True:
                return x * 2, flag
            case _:
                return x, flag

    return Scene(work)


@refused(DEPENDS)
def asked_whether_it_is_true(x: Tensor) -> Any:
    flag = bool((x > 1.2).any())
    return (x * 2 if flag is True else x), flag


@refused(DEPENDS)
def asked_whether_it_is_another_object() -> Scene:
    limit = 3

    def work(x: Tensor) -> Any:
        count = int(x.sum())
        return (x * 2 if count is limit else x), count

    return Scene(work, lambda seed: (torch.arange(2) + seed,))


@refused(DEPENDS)
def looked_for_in_a_list() -> Scene:
    def work(x: Tensor) -> Any:
        count = x.sum().item()
        return (x * 2 if count in [5, 7] else x), count

    return Scene(work, lambda seed: (torch.arange(2) + seed,))


@refused(DEPENDS)
def as_a_key(x: Tensor) -> Any:
    return {x.sum().item(): x}


@refused(DEPENDS)
def sorted_numbers(x: Tensor) -> Any:
    return sorted(item.item() for item in x[0])


@refused(DEPENDS)
def the_larger_one(x: Tensor) -> Any:
    return max(x[0, 0].item(), x[1, 1].item())


@refused(DEPENDS)
def given_to_an_operator(x: Tensor) -> Any:
    loss = x.sum().item()
    return x + loss, loss


@refused(DEPENDS)
def given_to_an_operator_that_may_refuse(x: Tensor) -> Any:
    loss = x.sum().item()
    try:
        return torch.full((2,), loss), loss
    except TypeError:
        return x, loss


@refused(DEPENDS)
def whatever_it_raises(x: Tensor) -> Any:
    loss = x.sum().item()
    try:
        return x * 2 if loss > 0.7 else x, loss
    except BaseException:
        return x, loss


@refused(MEMORY)
def first_of_a_list(x: Tensor) -> Any:
    return x[0].tolist()[0]


@refused(MEMORY)
def one_list_twice(x: Tensor) -> Any:
    row = x[0].tolist()
    return row, row


@refused(MEMORY)
def list_that_is_unpacked(x: Tensor) -> Any:
    a, b, *_ = x[0].tolist()
    return a, b


@refused(DEPENDS)
def kept_in_an_attribute() -> Scene:
    class Keeps(nn.Module):
        last = 0.0

        def forward(self, x: Tensor) -> Any:
            self.last = x.sum().item()
            return self.last

    net = Keeps()
    return Scene(net, watch=lambda: net.last)


@refused(DEPENDS, ignore=("losses",))
def kept_in_a_list_that_may_stay() -> Scene:
    losses: list[float] = []

    def work(x: Tensor) -> Any:
        losses.append(x.sum().item())
        return losses[-1]

    return Scene(work, watch=lambda: [*losses])


@refused("cannot capture")
def kept_where_no_name_leads() -> Scene:
    class Holder:
        __slots__ = ("items",)

    holder = Holder()
    holder.items = queue.SimpleQueue()  # type: ignore[attr-defined]

    def work(x: Tensor) -> Any:
        loss = x.sum().item()
        holder.items.put(loss)  # type: ignore[attr-defined]
        return loss

    return Scene(work)


@refused("cannot capture")
def kept_by_a_function() -> Scene:
    made: collections.deque[Any] = collections.deque(maxlen=1)

    def work(x: Tensor) -> Any:
        loss = x.sum().item()
        made.append(lambda: loss)
        return loss

    return Scene(work, watch=lambda: [item() for item in made])


@refused(DEPENDS)
def read_under_another_name() -> Scene:
    to_number = float
    return Scene(lambda x: to_number(x.sum()))


@right(recorded=1)
def a_function_of_the_users_that_is_called_float() -> Scene:
    space: dict[str, Any] = {"torch": torch, "float": lambda x: x * 2}
    exec("def work(x):\n    return float(x), x.sum().item()\n", space)
    return Scene(space["work"], watch=lambda: sorted(key for key in space if key != "work"))


@right(recorded=1)
def names_are_as_they_were() -> Scene:
    def work(x: Tensor) -> Any:
        return float(x.sum())

    return Scene(work, watch=lambda: ["float" in globals(), "item" in vars(torch.Tensor)])


@refused("cannot capture")
def a_complex_number_that_is_returned() -> Scene:
    return Scene(
        lambda x: (x * 1j).sum().item(), lambda seed: (normal(4, seed=seed) + 1j * normal(4),)
    )


@refused(DEPENDS)
def printed(x: Tensor) -> Any:
    loss = x.sum().item()
    print(loss)
    return loss


@refused(MEMORY)
def an_array(x: Tensor) -> Any:
    return x.numpy().sum().item()


@refused(DEPENDS)
def asked_by_a_function_whether_it_is_another_object() -> Scene:
    def work(x: Tensor) -> Any:
        count = int(x.sum())
        return (x * 2 if operator.is_(count, 3) else x), count

    return Scene(work, lambda seed: (torch.arange(2) + seed,))


class Doubles(TorchFunctionMode):
    """What is read is another number."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found * 2 if isinstance(found, float) else found


@refused(DEPENDS)
def read_inside_of_a_mode(x: Tensor) -> Any:
    with Doubles():
        return x.sum().item()


class Box:
    """Whose parts are seen as numbers."""

    def __init__(self, loss: float, result: Tensor) -> None:
        self.loss, self.result = loss, result


pytree.register_pytree_node(
    Box, lambda box: ([box.loss * 2, box.result], None), lambda parts, _: Box(*parts)
)


@refused(DEPENDS)
def in_an_object_that_changes_it(x: Tensor) -> Any:
    return Box(x.sum().item(), x)


@right(recorded=1)
def kinds_of_numbers_that_are_kept() -> Scene:
    kinds: dict[int, Any] = {}

    def work(x: Tensor) -> Any:
        counts: Any = collections.defaultdict(int)
        counts[x.size(0)] += 1
        kinds.setdefault(len(counts), [float, float(x[0, 0])])
        return float(x.sum()), dict(counts), isinstance(x.size(0), int), float("1.5")

    kinds[1] = None
    return Scene(work, watch=lambda: [*kinds.items()])


@refused("cannot capture")
def kept_beside_its_kind() -> Scene:
    kinds: list[Any] = []

    def work(x: Tensor) -> Any:
        loss = float(x.sum())
        if len(kinds) < 9:
            kinds.append((float, loss))
        return loss

    return Scene(work, watch=lambda: [kind is float for kind, _ in kinds][:1])


@right(recorded=1)
def an_argument(x: Tensor) -> Any:
    return x.tolist(), float(x[0, 0])


@right(recorded=1)
def numbers_and_no_tensor_beside_a_write() -> Scene:
    state = torch.zeros(4)

    def work(x: Tensor) -> Any:
        return float(state.add_(x[0]).sum())

    return Scene(work, one, watch=lambda: state)
