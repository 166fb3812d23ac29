"""What a call knows of its trajectory."""

from contextvars import ContextVar
from typing import Any, Dict, Optional


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


_current: "ContextVar[Context]" = ContextVar("agentfly_context", default=Context(state={}))
