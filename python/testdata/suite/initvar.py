from dataclasses import InitVar, dataclass, field
from typing import Optional, Union

from agentfly import tool


@dataclass
class Base:
    limit: InitVar[int]


@dataclass
class Request(Base):
    """A request.

    Attributes:
        limit: The most.
        text: What is asked.
    """

    text: str = ""
    scale: InitVar[Optional[float]] = None
    note: InitVar = None
    size: int = field(init=False)

    def __post_init__(self, limit, scale, note):
        self.size = limit if scale is None else int(limit * scale)


@dataclass
class Other:
    size: int


@tool()
def ask(request: Request) -> str:
    return repr(request)


@tool()
def either(request: Union[Request, Other]) -> str:
    return repr(request)
