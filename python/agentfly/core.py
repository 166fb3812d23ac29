"""What a call knows of its trajectory."""

from contextvars import ContextVar
from typing import Any, Awaitable, Callable, Dict, List, Optional, Union


class Context:
    """The argument context of a function: AgentFly's, as far as it means something here."""

    def __init__(
        self,
        rollout_id: str = "",
        metadata: Optional[Dict[str, Any]] = None,
        state: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.rollout_id = rollout_id  # the trajectory's id
        self.group_id: Optional[str] = None
        self.metadata: Dict[str, Any] = metadata or {}  # of a reward: the fields of the task
        self._state = state

    @property
    def state(self) -> Dict[str, Any]:
        """A dict of the trajectory."""
        if self._state is None:
            raise RuntimeError("there is no state here: write stateful=True in the decorator")
        return self._state

    def is_spec_acquired(self, spec: Any) -> bool:
        """There are no resources here: False."""
        return False

    async def acquire_resource(self, *args: Any, **kwargs: Any) -> Any:
        """There are no resources here: it raises."""
        raise NotImplementedError("context.acquire_resource is not offered here; use env_cls, or a prebuilt tool of the job")


class EnvironmentError(RuntimeError):
    """The environment could not do what a function asked of it."""


class Step:
    """What a step did."""

    def __init__(self, fields: Dict[str, Any]) -> None:
        self.observation: str = fields.get("observation", "")  # what the agent would see
        self.reward: float = fields.get("reward", 0.0)  # of this step alone
        self.terminated: bool = fields.get("terminated", False)  # the episode is over
        self.truncated: bool = fields.get("truncated", False)  # the episode is over, by a limit
        self.success: bool = fields.get("success", False)  # the goal is reached
        self.refused: bool = fields.get("refused", False)  # the action was not possible; the observation says why
        self.info: Dict[str, Any] = fields.get("info") or {}

    @property
    def over(self) -> bool:
        """The episode is over: no further step does anything."""
        return self.terminated or self.truncated


Action = Union[str, Dict[str, Any]]


def _of(action: Action) -> Dict[str, Any]:
    if isinstance(action, str):
        return {"text": action}
    if isinstance(action, dict) and isinstance(action.get("name"), str) and set(action) <= {"name", "arguments"}:
        return {"name": action["name"], "arguments": action.get("arguments") or {}}
    raise TypeError('an action is a text, or {"name": TOOL, "arguments": {…}} of one of the environment\'s tools; got %r' % (action,))


def _method(name: str, args: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    if args:
        raise TypeError("environment.%s takes its arguments by name" % name)
    return {"name": name, "arguments": kwargs}


class Environment:
    """The argument environment of a plain function: the trajectory's, until the call is over. Other names are methods of its own class."""

    def __init__(self, ask: Callable[[str, Dict[str, Any]], Any]) -> None:
        self._ask = ask

    def step(self, action: Action) -> Step:
        """Act. What it pays is the trajectory's; a reward may not act."""
        return Step(self._ask("step", _of(action)))

    def actions(self) -> List[str]:
        """The actions that are possible now, of an environment that knows them."""
        return list(self._ask("actions", {}))

    def score(self) -> Optional[float]:
        """The environment's own score of the episode so far; None where it has none."""
        return self._ask("score", {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._ask("call", _method(name, args, kwargs))


class AsyncEnvironment:
    """The argument environment of an async function: what Environment has, awaited."""

    def __init__(self, ask: Callable[[str, Dict[str, Any]], Awaitable[Any]]) -> None:
        self._ask = ask

    async def step(self, action: Action) -> Step:
        """Act. What it pays is the trajectory's; a reward may not act."""
        return Step(await self._ask("step", _of(action)))

    async def actions(self) -> List[str]:
        """The actions that are possible now, of an environment that knows them."""
        return list(await self._ask("actions", {}))

    async def score(self) -> Optional[float]:
        """The environment's own score of the episode so far; None where it has none."""
        out: Optional[float] = await self._ask("score", {})
        return out

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._ask("call", _method(name, args, kwargs))


_current: "ContextVar[Context]" = ContextVar("agentfly_context", default=Context(state={}))
