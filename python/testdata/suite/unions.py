from typing import Optional, Union

from agentfly import tool


@tool()
def either(
    count: Optional[int] = None,
    amount: Union[float, int] = 0,
    size: Union[int, float] = 0,
    text: Union[int, str] = "",
    key=lambda x: x
):
    return "%r %r %r %r" % (count, amount, size, text)
