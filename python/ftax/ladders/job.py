"""What a process of its own is given: a model that it can build again, and runtimes with their
hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting

if TYPE_CHECKING:
    from ftax.runtimes.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``model`` is what `load_model` makes it of; ``places`` are runtimes and hosts."""

    model: str
    places: tuple[tuple[str, str], ...]
    setting: Setting = field(default_factory=Setting)

    @classmethod
    def of(cls, loaded: LoadedModel, places: Iterable[tuple[str, str]]) -> Self | None:
        """None if another process cannot make this model and these inputs again."""
        if loaded.again is None:
            return None
        return cls(model=loaded.again, setting=loaded.setting, places=tuple(places))

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "setting": self.setting.to_dict()}


def build(data: Mapping[str, Any]) -> Workspace:
    """In that process: the model of the job that `Job.to_dict` wrote, with nothing ready yet."""
    from ftax.runtimes.workspace import Workspace
    from ftax.steps.load import load_model

    return Workspace(load_model(data["model"], **data["setting"]))
