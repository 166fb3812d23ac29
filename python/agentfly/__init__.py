"""Tools, rewards and agents of AgentFly in plain Python.

    from agentfly import tool, reward

    @tool()
    def area(width: float, height: float) -> str:
        \"\"\"Area of a rectangle.

        Args:
            width: Width in metres.
            height: Height in metres.
        \"\"\"
        return str(width * height)

    @reward()
    def right(final_response: str, answer: str) -> float:
        return 1.0 if final_response.strip() == answer else 0.0

Name the file in a job: ``agent: {tools: [{python: FILE}]}``, ``rewards: [{python: FILE, name: right}]``. What is decorated stays the
function that it was. The module comes with the agentfly binary; installing it is for editors and for tests of your own.
"""

import json
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, overload

from agentfly.core import AsyncEnvironment, Context, Environment, EnvironmentError, Step, _current

__all__ = ["tool", "reward", "agent", "state", "Context", "Environment", "AsyncEnvironment", "EnvironmentError", "Step"]
__version__ = "0.1.0"

_F = TypeVar("_F", bound=Callable[..., Any])

# What was decorated, in its order: kind, function, options that were given. The worker reads it.
_declared: List[Tuple[str, Any, Dict[str, Any]]] = []


def _declare(kind: str, options: Dict[str, Any]) -> Callable[[Any], Any]:
    def decorator(target: Any) -> Any:
        if not callable(target) or not hasattr(target, "__name__"):
            raise TypeError("@%s decorates a function, got %r" % (kind, type(target).__name__))
        _declared.append((kind, target, options))
        return target

    return decorator


# What the options must be; the others may be anything.
_TYPES: Dict[str, Tuple[Any, str]] = {}
_TYPES.update(dict.fromkeys(("name", "description", "environment", "status", "backend"), (str, "a string")))
_TYPES.update(dict.fromkeys(("stateful", "terminal", "idempotent", "deterministic", "auto_register"), (bool, "True or False")))
_TYPES.update(dict.fromkeys(("schema", "env_kwargs"), (dict, "a dict")))
_TYPES.update(dict.fromkeys(("max_tokens", "max_length", "pool_size"), (int, "a whole number")))
_TYPES["timeout"] = ((int, float), "a number of seconds")


def _given(values: Dict[str, Any], defaults: Dict[str, Any]) -> Dict[str, Any]:
    for option, value in values.items():
        kind, what = _TYPES.get(option, (object, ""))
        if value is None:
            continue
        if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool and what:
            raise TypeError("%s=%r: it must be %s" % (option, value, what))
        if option in ("timeout", "max_tokens", "max_length") and not 0 < value < 1e9:
            raise ValueError("%s=%r: it must be above 0 and below 1e9" % (option, value))
    try:
        json.dumps(values.get("schema"), allow_nan=False)
    except (TypeError, ValueError) as e:
        raise TypeError("schema: it must be a dict that JSON can hold (%s)" % e)
    return {k: v for k, v in values.items() if v is not None and v is not defaults.get(k) and v != defaults.get(k)}


@overload
def tool(name: _F) -> _F: ...
@overload
def tool(
    name: Optional[str] = ...,
    description: Optional[str] = ...,
    *,
    stateful: bool = ...,
    environment: Optional[str] = ...,
    timeout: Optional[float] = ...,
    max_tokens: Optional[int] = ...,
    terminal: bool = ...,
    idempotent: bool = ...,
    deterministic: bool = ...,
    schema: Optional[Dict[str, Any]] = ...,
    status: str = ...,
    max_length: Optional[int] = ...,
    auto_register: bool = ...,
    env_cls: Optional[type] = ...,
    env_kwargs: Optional[Dict[str, Any]] = ...,
    pool_size: int = ...,
    resource_spec: Any = ...,
    backend: str = ...
) -> Callable[[_F], _F]: ...
def tool(
    name: Any = None,
    description: Optional[str] = None,
    *,
    stateful: bool = False,
    environment: Optional[str] = None,
    timeout: Optional[float] = None,
    max_tokens: Optional[int] = None,
    terminal: bool = False,
    idempotent: bool = False,
    deterministic: bool = False,
    schema: Optional[Dict[str, Any]] = None,
    status: str = "success",
    max_length: Optional[int] = None,
    auto_register: bool = True,
    env_cls: Optional[type] = None,
    env_kwargs: Optional[Dict[str, Any]] = None,
    pool_size: int = -1,
    resource_spec: Any = None,
    backend: str = "local"
) -> Any:
    """A tool that the model may call.

    Args:
        name: What the model calls it; the function's name where it is missing.
        description: What the model reads of it; the docstring's text where it is missing.
        stateful: Calls of one trajectory go to one worker, where state() keeps what belongs to the trajectory.
        environment: The kind of the job's environment that the tool acts in, which it gets as the argument environment: an Environment, of an
            async function an AsyncEnvironment.
        timeout: Seconds of one call.
        max_tokens: Tokens of an observation; what is longer is cut.
        terminal: A call that succeeds ends the trajectory, and its observation is the final answer.
        idempotent: A call that broke may be tried again.
        deterministic: The same arguments give the same observation, so that a job may cache it.
        schema: JSON schema of the arguments, in place of the one of the signature.
        status: AgentFly's; "terminal" is terminal=True.
        max_length: AgentFly's; characters of an observation, of which the first are kept.
        auto_register: AgentFly's; False leaves the function out.
        env_cls: AgentFly's; every trajectory gets an instance as the argument env.
        env_kwargs: AgentFly's; arguments of env_cls.
        pool_size: AgentFly's; not used.
        resource_spec: AgentFly's; not used.
        backend: AgentFly's; not used.
    """
    if callable(name):
        return _declare("tool", {})(name)
    values = dict(locals())
    defaults: Dict[str, Any] = {"stateful": False, "terminal": False, "idempotent": False, "deterministic": False}
    defaults.update({"status": "success", "auto_register": True, "pool_size": -1, "backend": "local"})
    return _declare("tool", _given(values, defaults))


@overload
def reward(name: _F) -> _F: ...
@overload
def reward(
    name: Optional[str] = ...,
    *,
    stateful: bool = ...,
    timeout: Optional[float] = ...,
    auto_register: bool = ...,
    env_cls: Optional[type] = ...,
    env_kwargs: Optional[Dict[str, Any]] = ...,
    pool_size: int = ...
) -> Callable[[_F], _F]: ...
def reward(
    name: Any = None,
    *,
    stateful: bool = False,
    timeout: Optional[float] = None,
    auto_register: bool = True,
    env_cls: Optional[type] = None,
    env_kwargs: Optional[Dict[str, Any]] = None,
    pool_size: int = -1
) -> Any:
    """A reward: its arguments are matched by name, and it returns a number, or a dict with reward and further numbers.

    The names are final_response (AgentFly's prediction is the same), trajectory, messages, task, environment, and the fields of the
    task's data line. An argument with a default may be missing.

    Args:
        name: What the job calls it; the function's name where it is missing.
        stateful: It runs in the worker of the trajectory's stateful tools and sees their state().
        timeout: Seconds of one call.
        auto_register: AgentFly's; False leaves the function out.
        env_cls: AgentFly's; the trajectory's instance is the argument env.
        env_kwargs: AgentFly's; arguments of env_cls.
        pool_size: AgentFly's; not used.
    """
    if callable(name):
        return _declare("reward", {})(name)
    values = dict(locals())
    return _declare("reward", _given(values, {"stateful": False, "auto_register": True, "pool_size": -1}))


@overload
def agent(name: _F) -> _F: ...
@overload
def agent(name: Optional[str] = ...) -> Callable[[_F], _F]: ...
def agent(name: Any = None) -> Any:
    """A function of agent.kind custom, which reads completions and writes observations; it is known by its name.

    parse(completion) returns a dict with calls (a list of {"name", "arguments"}), answer, and errors (a list of strings, one for each
    call that cannot be read); each may be missing. observe(results) gets a list of {"name", "arguments", "observation", "failed"} and
    returns a list of {"role", "content"}. instructions(tools) returns what the system prompt says of the tools, of which it gets
    OpenAI's schemas; stops() returns stop strings. All but parse may be missing.

    Args:
        name: Which of the four it is; the function's name where it is missing.
    """
    if callable(name):
        return _declare("agent", {})(name)
    return _declare("agent", _given({"name": name}, {}))


def state() -> Dict[str, Any]:
    """What belongs to the trajectory whose call this is: a dict that its later calls see, and that is dropped when it is over.

    What has a method close is closed then. It needs stateful=True. Outside a worker it is one dict of the process.
    """
    return _current.get().state


