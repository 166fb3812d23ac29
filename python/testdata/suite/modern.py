from typing import Annotated, Optional

from agentfly import tool


@tool()
def modern(names: list[str], table: dict[str, int], either: int | None = None, note: Annotated[str, "A remark."] = "",
           count: Optional[Annotated[int, "How many."]] = None) -> str:
    """Hints of Python 3.10."""
    return f"{names} {table} {either} {note} {count}"
