import asyncio

from agentfly import reward, tool


@tool()
async def later(text: str):
    await asyncio.sleep(0)
    return text


@tool()
async def fails():
    await asyncio.sleep(0)
    raise ValueError("later")


@reward()
async def scored(final_response):
    await asyncio.sleep(0)
    return {"reward": len(final_response)}


async def test_later():
    assert await later("x") == "x"
